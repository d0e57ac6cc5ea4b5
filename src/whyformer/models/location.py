"""Where a model's files are: a bundled folder, a local one, or a commit of the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported lazily

from whyformer.errors import WhyformerError, nearest
from whyformer.models.checkpoint import check_folder
from whyformer.models.zoo import bundled, bundled_folder

LONGEST_NAME = 80  # characters of a name that a message repeats
LONGEST_REASON = 300  # characters of a library's message
HUB_SECONDS = 5.0  # to respond; from_pretrained itself would retry six times, for half a minute


@dataclass(frozen=True)
class Location:
    """Where a model's files are: a folder or a hub id, and whether only local files can be read."""

    place: str
    is_offline: bool
    revision: str | None = None  # the hub commit whose files were checked

    @property
    def how(self) -> dict[str, Any]:
        revision = {} if self.revision is None else {"revision": self.revision}
        return {"local_files_only": self.is_offline, "trust_remote_code": False, **revision}


def locate(name: str) -> Location:
    if "://" in name:
        raise WhyformerError(f"{name!r:.80} is a URL, and URLs are not fetched: give a folder or a Hugging Face id.")
    if os.path.isfile(name):
        raise WhyformerError(f"{name!r} is a file, not a model: a saved explanation is read by Explanation.load.")
    if name in bundled():
        return Location(str(bundled_folder(name)), is_offline=True)
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        check_folder(Path(folder), name)
        return Location(folder, is_offline=True)
    if not is_hub_id(name):
        raise WhyformerError(
            f"No model {_excerpt(name)}: no such folder, and not a Hugging Face id (owner/name).{bundled_names(name)}"
        )
    is_offline = is_unreachable(name)
    if is_offline and huggingface_hub.try_to_load_from_cache(name, "config.json") is None:
        raise WhyformerError(
            f"No model {name!r}: not bundled, no folder, not in the local cache, and the Hugging Face Hub cannot be "
            f"reached.{bundled_names(name)}"
        )
    with reading("configuration", name):
        # All files that decide what is read, from one commit: the files that are checked are the ones that are loaded.
        snapshot = Path(snapshot_download(name, allow_patterns="*.json", local_files_only=is_offline))
    check_folder(snapshot, name, is_complete=False)
    return Location(name, is_offline, snapshot.name)


def is_unreachable(hub_id: str) -> bool:
    """Whether the hub does not respond; raise if it has no such model or the model is gated."""
    try:
        huggingface_hub.HfApi().model_info(hub_id, timeout=HUB_SECONDS)
    except GatedRepoError as error:
        raise WhyformerError(
            f"{hub_id!r} is gated: accept its terms on the Hugging Face Hub and log in there."
        ) from error
    except RepositoryNotFoundError as error:
        message = f"No model {hub_id!r}: no folder, and none on the Hugging Face Hub.{bundled_names(hub_id)}"
        raise WhyformerError(message) from error
    except Exception:  # Connection errors belong to the HTTP library, which changes with the hub's version.
        return True
    return False


@contextmanager
def reading(part: str, name: str) -> Iterator[None]:
    """Report any error that a library raises on a damaged file in one line."""
    try:
        yield
    except WhyformerError:
        raise
    except Exception as error:  # A damaged file can fail anywhere in the readers of three libraries.
        if "trust_remote_code" in str(error):
            own_code = "requires its own code, which is never run here: load it yourself and pass the model"
            raise WhyformerError(f"{name!r} {own_code}.") from error
        reason = f"its {part} cannot be used: fix it, or fetch the model again ({_first_line(error)})"
        raise WhyformerError(f"Cannot load {name!r}: {reason}") from error


def _excerpt(name: str) -> str:
    """A name in quotes, shortened if it is too long for a message."""
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def is_hub_id(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return bool(name)


def bundled_names(name: str) -> str:
    return f" {nearest(name, bundled())}" if bundled() else ""


def _first_line(error: Exception) -> str:
    """The first line of a library's message, and the second if the first announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return (" ".join(lines[:2]) if lines[0].endswith(":") else lines[0])[:LONGEST_REASON]
