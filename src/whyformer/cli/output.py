"""The files that the command line writes, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whyformer.api.signatures import private_key, sign
from whyformer.errors import WhyformerError
from whyformer.files import whole_file
from whyformer.render import html
from whyformer.render.text_spans import TextUnits
from whyformer.results.explanation import Explanation

FILE_SUFFIXES = (".html", ".png", ".json", ".npz")


@dataclass(frozen=True)
class Destination:
    """A destination of explanations: one file, or a folder with a file for each; audit files may be signed."""

    path: Path
    suffix: str | None = None
    key: Path | None = None

    def write(self, explanations: Sequence[Explanation], names: Sequence[str], *, units: TextUnits) -> None:
        """Write all explanations, each by its name in a folder; texts are coloured by word or token."""
        with writing(self.path):
            if self.suffix is not None:
                self.path.mkdir(parents=True, exist_ok=True)
                for name, explanation in zip(_distinct(names), explanations, strict=True):
                    self._save(explanation, self.path / f"{name}{self.suffix}", units)
            elif len(explanations) == 1:
                self._save(explanations[0], self.path, units)
            else:
                with whole_file(self.path) as unfinished:
                    unfinished.write_text(html.html_page(explanations, names=names, units=units), encoding="utf-8")

    def _save(self, explanation: Explanation, path: Path, units: TextUnits) -> None:
        explanation.save(path, units=units)
        if self.key is not None:
            sign(path, self.key)


def destination_of(out: Path | None, format: str | None, count: int, key: Path | None = None) -> Destination | None:
    """The destination with the key for audit files, checked before any work."""
    if key is not None:
        private_key(key)
        if format != "audit.json" and not (out is not None and out.name.lower().endswith(".audit.json")):
            raise WhyformerError(f"--sign {str(key)!r} signs audit files: add --out NAME.audit.json.")
    if out is None:
        if format is not None:
            raise WhyformerError(f"--format {format} applies to the files in a folder: name the folder with --out.")
        return None
    is_several = count > 1
    if (out.is_dir() and (is_several or not out.suffix)) or (is_several and not out.suffix):
        check_out_folder(out, "several inputs go to a folder or an .html report.")
        return Destination(out, f".{format or 'html'}", key)
    if is_several and out.suffix.lower() != ".html":
        known = out.suffix.lower().removeprefix(".") if out.suffix.lower() in FILE_SUFFIXES else "html"
        raise WhyformerError(
            f"--out {str(out)!r}: several inputs go to a folder or an .html report. "
            f"For a folder: --out {str(out.with_suffix(''))!r} --format {known}."
        )
    if format is not None:
        raise WhyformerError(
            f"--out {str(out)!r} is one file, but --format {format} applies to files in a folder: leave one out."
        )
    check_out_file(out, (*FILE_SUFFIXES, ".audit.json"))
    return Destination(out, key=key)


def check_out_file(out: Path, suffixes: Sequence[str]) -> None:
    """Raise if a file could not be written, or has an unknown format."""
    if out.suffix.lower() not in suffixes:
        lack = f"no format for {out.suffix!r}" if out.suffix else "its suffix must name the format"
        raise WhyformerError(f"--out {str(out)!r}: {lack}. Known: {', '.join(suffixes)}.")
    if out.is_dir():
        raise WhyformerError(f"--out {str(out)!r} is a folder: name a file in it.")
    if not out.parent.is_dir():
        raise WhyformerError(f"--out {str(out)!r}: the folder {str(out.parent)!r} does not exist. Make it first.")
    if not os.access(out.parent, os.W_OK):
        raise WhyformerError(
            f"--out {str(out)!r}: the folder {str(out.parent)!r} cannot be written to. Choose another."
        )


def check_out_folder(out: Path, way_out: str = "name a folder.") -> None:
    """Raise if a folder is a file."""
    if out.exists() and not out.is_dir():
        raise WhyformerError(f"--out {str(out)!r} is a file: {way_out}")


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Report disk errors raised inside the block in one line."""
    try:
        yield
    except OSError as error:
        raise WhyformerError(f"--out {str(out)!r} cannot be written: {error.strerror}. Choose another.") from error


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """Number repeated names."""
    seen: set[str] = set()
    for name in names:
        number, free = 1, name
        while free in seen:
            number += 1
            free = f"{name}-{number}"
        seen.add(free)
        yield free
