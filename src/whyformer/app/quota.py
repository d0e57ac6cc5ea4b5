"""How much visitors may upload in a while, each and all together."""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from whyformer.app.limits import Limits
from whyformer.errors import WhyformerError

BLOCK = 4096  # what a file or a request takes at least: empty ones fill a disk, too


@dataclass
class CountedTransfer:
    """One upload: who sends it, since when, and how many bytes it is charged."""

    visitor: str
    started: float
    size: int = 0


class UploadQuota:
    """The bytes of every upload that is not older than files are kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transfers: deque[CountedTransfer] = deque()
        self._sizes: Counter[str] = Counter()
        self._lock = Lock()

    def begin(self, visitor: str) -> CountedTransfer:
        """A new upload; those that were deleted meanwhile no longer count."""
        transfer = CountedTransfer(visitor, time.monotonic())
        with self._lock:
            while self._transfers and transfer.started - self._transfers[0].started > self._limits.kept_seconds:
                old = self._transfers.popleft()
                self._sizes -= Counter({old.visitor: old.size})  # and drops visitors without any
            self._transfers.append(transfer)
        self.charge(transfer, BLOCK)
        return transfer

    def charge(self, transfer: CountedTransfer, size: int) -> None:
        """Count bytes that arrived; refused where they are too many."""
        with self._lock:
            transfer.size += size
            self._sizes[transfer.visitor] += size
            own, all_sizes = self._sizes[transfer.visitor], self._sizes.total()
        minutes = self._limits.kept_seconds // 60
        if own > self._limits.visitor_bytes:
            raise WhyformerError(
                f"You sent more than the {self._limits.visitor_bytes >> 20} MB that one visitor may send in "
                f"{minutes} minutes: try again later, or send smaller files."
            )
        if all_sizes > self._limits.server_bytes:
            raise WhyformerError(f"Visitors sent more than this page can keep for {minutes} minutes: try again later.")


def delete_abandoned(folder: Path, seconds: float) -> None:
    """Delete what uploads that broke off left in the folder: Gradio moves only complete ones into folders of theirs."""
    oldest = time.time() - seconds
    with suppress(OSError):
        for file in folder.iterdir():
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)
