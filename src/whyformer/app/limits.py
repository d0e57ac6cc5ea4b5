"""Limits per visitor, checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whyformer.errors import WhyformerError


@dataclass(frozen=True)
class Limits:
    """The limits of sizes, counts and times.

    Attributes:
        file_bytes: Of one uploaded file.
        visitor_bytes: Of one visitor's uploads while files are kept; visitors are distinguished by address.
        server_bytes: Of all visitors' uploads while files are kept.
        body_bytes: Of any other request.
        pixels: Of a picture.
        regions: Of a picture, for models that see regions.
        characters: Of all texts of a question together.
        documents: Of a response, and texts that a picture is compared with.
        examples: Of an evaluation.
        survey_texts: Of a survey.
        survey_pictures: Of a survey, and as many masks.
        unpacked_bytes: Of the pictures of a zip file.
        methods: In a comparison or an evaluation.
        labels: In a comparison.
        tokens: That a model writes.
        picture_tokens: That a model writes about a picture, each explained separately.
        seconds: Of one answer.
        evaluation_seconds: Of one evaluation or survey.
        kept_seconds: For which uploads and downloads are kept.
        at_once: Answers computed at the same time.
        waiting: Visitors in the queue.
    """

    file_bytes: int = 10 << 20
    visitor_bytes: int = 200 << 20
    server_bytes: int = 2 << 30
    body_bytes: int = 1 << 20
    pixels: int = 40_000_000
    regions: int = 256
    characters: int = 20_000
    documents: int = 20
    examples: int = 32
    survey_texts: int = 1000
    survey_pictures: int = 200
    unpacked_bytes: int = 100 << 20
    methods: int = 6
    labels: int = 4
    tokens: int = 64
    picture_tokens: int = 24
    seconds: float = 120.0
    evaluation_seconds: float = 600.0
    kept_seconds: int = 900
    at_once: int = 2
    waiting: int = 64

    def check_texts(self, *texts: str) -> None:
        """Raise if texts are too long in total."""
        count = sum(map(len, texts))
        if count > self.characters:
            raise WhyformerError(
                f"The text has {count:,} characters, but this page takes at most {self.characters:,}: shorten it, or "
                "use the library on your own machine."
            )

    def check_count(self, name: str, count: int, most: int) -> None:
        """Raise if there are too many of something."""
        if count > most:
            raise WhyformerError(f"{count} {name}, but this page takes at most {most}: leave some out.")

    def check_file(self, path: Path) -> None:
        """Raise if a file is too large."""
        size = path.stat().st_size
        if size > self.file_bytes:
            raise WhyformerError(
                f"{path.name} has {size / (1 << 20):.1f} MB, but this page takes at most {self.file_bytes >> 20} MB: "
                "choose a smaller file."
            )
