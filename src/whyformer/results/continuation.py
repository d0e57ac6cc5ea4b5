"""The result of letting a model write: why each token of what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.results.explanation import Explanation


@dataclass(frozen=True)
class Continuation:
    """What a model wrote after a text, and why each token of it."""

    text: str
    explanations: tuple[Explanation, ...]

    def __post_init__(self) -> None:
        if not self.explanations:
            raise WhyformerError("A continuation has at least one token, but explanations is empty.")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens written."""
        return tuple(explanation.target for explanation in self.explanations)

    @property
    def headline(self) -> str:
        """The continuation in a line: `␣a great film by bi_token on mini-gpt`."""
        from whyformer.render.text import visible

        first = self.explanations[0]
        return f"{visible(self.text)} by {first.manner} on {visible(first.model)}"

    def matrix(self, part: str | None = None) -> np.ndarray:
        """Scores [written token, token before it]; tokens that were not yet there have 0.

        `part` names the stream where there are two: "source", or "target" for what was written before.
        """
        first = next(iter(self.explanations[0].parts))
        known = ("source", "target") if first == "source" else (first,)
        if part is not None and part not in known:
            raise WhyformerError(f"No part named {part!r}. Known: {', '.join(known)}.")
        name = part or first
        rows = [x.parts[name].scores if name in x.parts else np.zeros(0, dtype=np.float32) for x in self.explanations]
        widest = max(map(len, rows))
        return np.stack([np.pad(row, (0, widest - len(row))) for row in rows])

    def save(self, path: str | Path) -> None:
        """Write to a .html, .png, .json or .npz file; an error leaves the folder as it was."""
        from whyformer.results import storage

        storage.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Continuation:
        """Read back what `save` wrote to a .json or .npz file."""
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __str__(self) -> str:
        from whyformer.render import terminal

        return terminal.shown(self)

    def __repr__(self) -> str:
        return f"<Continuation {self.headline}; {len(self.explanations)} tokens>"

    def _repr_html_(self) -> str:
        from whyformer.render import html

        return html.fragment(self)
