"""Upload quotas, per visitor and in total."""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from whyformer.app.limits import Limits
from whyformer.errors import WhyformerError

BLOCK = 4096  # the minimum size of a file or request: empty ones fill a disk, too


@dataclass
class CountedTransfer:
    """One upload: its visitor, start time, and charged bytes."""

    visitor: str
    started: float
    size: int = 0


class UploadQuota:
    """The bytes of all uploads within the time that files are kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transfers: deque[CountedTransfer] = deque()
        self._sizes: Counter[str] = Counter()
        self._lock = Lock()

    def begin(self, visitor: str) -> CountedTransfer:
        """Start an upload, dropping those that have been deleted since."""
        transfer = CountedTransfer(visitor, time.monotonic())
        with self._lock:
            while self._transfers and transfer.started - self._transfers[0].started > self._limits.kept_seconds:
                old = self._transfers.popleft()
                self._sizes -= Counter({old.visitor: old.size})  # also drops visitors without uploads
            self._transfers.append(transfer)
        self.charge(transfer, BLOCK)
        return transfer

    def charge(self, transfer: CountedTransfer, size: int) -> None:
        """Count received bytes; raise if they exceed the quota."""
        with self._lock:
            transfer.size += size
            self._sizes[transfer.visitor] += size
            own, all_sizes = self._sizes[transfer.visitor], self._sizes.total()
        minutes = self._limits.kept_seconds // 60
        if own > self._limits.visitor_bytes:
            raise WhyformerError(
                f"You uploaded more than {self._limits.visitor_bytes >> 20} MB, the limit per visitor in {minutes} "
                "minutes: try again later, or upload smaller files."
            )
        if all_sizes > self._limits.server_bytes:
            raise WhyformerError(
                f"Visitors uploaded more than this page can keep for {minutes} minutes: try again later."
            )


def delete_abandoned(folder: Path, seconds: float) -> None:
    """Delete the remains of aborted uploads: Gradio only moves complete ones into their own folders."""
    oldest = time.time() - seconds
    with suppress(OSError):
        for file in folder.iterdir():
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)
