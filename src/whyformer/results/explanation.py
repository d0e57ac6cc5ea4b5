"""The result: why one example got one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import WordPieces
from whyformer.results.part import Aggregate, Part, Word


def _visible(text: str) -> str:
    # The renderers are built on this module, so they are only imported when a method needs them.
    from whyformer.render.text import visible

    return visible(text)


def _several(parts: Mapping[str, Part], wanted: str) -> str:
    names = ", ".join(parts)
    return f"Several parts have {wanted}: {names}. Name one: explanation.parts[{next(iter(parts))!r}].{wanted}."


@dataclass(frozen=True)
class Explanation:
    """One score per token of one example, for one target, by one method."""

    parts: Mapping[str, Part]
    target: str
    probability: float | None
    method: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    completeness: float | None = None  # how far the scores are from adding up to the answer's, where they should

    def __post_init__(self) -> None:
        if not self.parts:
            raise WhyformerError("An explanation has at least one part, but parts is empty.")
        if self.probability is not None and not math.isfinite(self.probability):
            raise WhyformerError(f"probability is finite or None, not {self.probability}.")

    @property
    def scores(self) -> np.ndarray:
        return self._only_part("scores").scores

    @property
    def tokens(self) -> tuple[str, ...]:
        return self._only_part("tokens").tokens

    @property
    def answer(self) -> str:
        """The target and its probability in a line: `cat (0.93)`, of a token with a space `␣cat (0.93)`."""
        target = _visible(self.target)
        return target if self.probability is None else f"{target} ({self.probability:.2f})"

    @property
    def headline(self) -> str:
        """The explanation in a line: `cat (0.93) by bi_token (backward=libra) on mini-vit`."""
        return f"{self.answer} by {self.manner} on {_visible(self.model)}"

    @property
    def manner(self) -> str:
        """The method, and how its gradients were taken if not as gradients: `bi_token (backward=libra)`."""
        backward = self.options.get("backward")
        return _visible(self.method if backward is None else f"{self.method} (backward={backward})")

    def words(self, aggregate: Aggregate = "max") -> list[Word]:
        """Scores of the whitespace-delimited words: the largest or the sum of their pieces' scores."""
        texts = {name: part for name, part in self.parts.items() if isinstance(part.layout, WordPieces)}
        if not texts:
            raise WhyformerError(f"Only text has words; the parts of this explanation are: {', '.join(self.parts)}.")
        if len(texts) > 1:
            raise WhyformerError(_several(texts, "words()"))
        (part,) = texts.values()
        return part.words(aggregate)

    def save(self, path: str | Path) -> None:
        """Write to a .html, .png, .json or .npz file; an error leaves the folder as it was."""
        from whyformer.results import storage

        storage.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read back what `save` wrote to a .json or .npz file."""
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __str__(self) -> str:
        from whyformer.render import terminal

        return terminal.shown(self)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {part.layout.summary}" for name, part in self.parts.items())
        return f"<Explanation of {self.headline}; {parts}>"

    def _repr_html_(self) -> str:
        from whyformer.render import html

        return html.fragment(self)

    def _only_part(self, wanted: str) -> Part:
        if len(self.parts) > 1:
            raise WhyformerError(_several(self.parts, wanted))
        (part,) = self.parts.values()
        return part
