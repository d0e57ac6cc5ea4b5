"""The journal of a survey: a line for everything that was computed, so that an interrupted survey can resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.files import parse_json

HEADER = "survey"


@dataclass(frozen=True)
class Journal:
    """A JSON Lines file with a header of the survey's settings; lines are of a kind, and read one at a time."""

    path: Path

    def open_for(self, settings: dict[str, Any]) -> None:
        """Begin the file, or check that it was begun with the same settings; drop a line that was cut off.

        Any other file is left untouched.
        """
        settings = json.loads(json.dumps(settings))
        if self._is_unwritten():
            self.path.write_text(json.dumps({"kind": HEADER, **settings}) + "\n", encoding="utf-8")
            return
        self._drop_cut_off_line()
        header = next(iter(self.lines(HEADER)), {})
        differences = [name for name in {*header, *settings} - {"kind"} if header.get(name) != settings.get(name)]
        if differences:
            raise WhyformerError(
                f"{str(self.path)!r} is of another survey, with other {', '.join(sorted(differences))}: delete it, or "
                "name another file."
            )

    def lines(self, kind: str) -> Iterator[dict[str, Any]]:
        """The lines of a kind, in the order in which they were written."""
        start = f'{{"kind": "{kind}"'
        with self.path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                if text.startswith(start):
                    try:
                        yield parse_json(text)
                    except ValueError as error:
                        raise WhyformerError(
                            f"Line {number} of {str(self.path)!r} is damaged ({error}): delete the file."
                        ) from error

    def write(self, kind: str, lines: list[dict[str, Any]]) -> None:
        """Append lines, and flush them to the file."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"kind": kind, **line}, ensure_ascii=False) + "\n" for line in lines)

    def _is_unwritten(self) -> bool:
        """Whether the header is missing or cut off; raise if this is not a journal."""
        if not self.path.is_file():
            return True
        start = f'{{"kind": "{HEADER}"'.encode()
        with self.path.open("rb") as file:
            first = file.readline()
        if not first.startswith(start) and not (start.startswith(first) and len(first) == self.path.stat().st_size):
            raise WhyformerError(
                f"{str(self.path)!r} is not the journal of a survey, and is left untouched: name another file."
            )
        return not first.endswith(b"\n")

    def _drop_cut_off_line(self) -> None:
        """Drop what follows the last line break, which a kill may have left."""
        with self.path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            while end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                end -= 1
            file.truncate(end)
