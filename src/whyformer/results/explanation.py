"""Explanations: why a model gave an example one answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.render import figure, html, terminal
from whyformer.render.plot import plot_part
from whyformer.render.show import Where, show
from whyformer.render.text_spans import TextUnits, visible
from whyformer.results.part import (
    Aggregate,
    By,
    Part,
    TopItem,
    Word,
    check_top_count,
    only_picture,
    only_text,
    part_names,
    several_parts,
    strongest_items,
    units_of,
)
from whyformer.results.unit_effects import ModelQuestion


@dataclass(frozen=True)
class Explanation:
    """The explanation of one target of one example by one method: a score for each token.

    Returned by `explain`. `print` shows it in the terminal; a notebook displays it in colours.

    Attributes:
        parts: The streams of the input by name ("text", "image", "source" …), with their tokens and scores.
        target: The name of the explained label, or the next word.
        probability: The target's probability; None if the model has no probabilities.
        method: The name of the method.
        model: The name of the model.
        options: The method's options.
        notes: Caveats for the reader, in sentences.
        completeness: Difference of the summed scores and the target's score, if they should be equal; else None.
        answers: The likeliest answers with their probabilities, most likely first; empty if the model has none.
        file: The name of the explained file; empty for other examples. Files of results do not keep it.
        remover: Computes `what_if`; None for an explanation loaded from a file.
        audit: Returns the content of its audit file; None for an explanation loaded from a file.

    Raises:
        WhyformerError: If there are no parts, or the probability is not finite.

    Example:
        >>> import whyformer
        >>> explanation = whyformer.explain("A wonderful film.", "mini-bert")
        >>> explanation.target, [item.text for item in explanation.top(1)]
        ('positive', ['wonderful'])
    """

    parts: Mapping[str, Part]
    target: str
    probability: float | None
    method: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    completeness: float | None = None
    answers: Mapping[str, float] = field(default_factory=dict)
    file: str = field(default="", compare=False)
    remover: ModelQuestion | None = field(default=None, compare=False, repr=False)
    audit: Callable[[Explanation], dict[str, Any]] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise WhyformerError("An explanation has at least one part, but parts is empty.")
        if self.probability is not None and not math.isfinite(self.probability):
            raise WhyformerError(f"probability is finite or None, not {self.probability}.")

    @property
    def scores(self) -> np.ndarray:
        """The scores of the only part; if there are several, use `parts[name].scores`."""
        return self._only_part("scores").scores

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the only part; if there are several, use `parts[name].tokens`."""
        return self._only_part("tokens").tokens

    @property
    def answer(self) -> str:
        """The target and its probability: `cat (0.93)`, or `␣cat (0.93)` for a token with a space."""
        target = visible(self.target)
        return target if self.probability is None else f"{target} ({self.probability:.2f})"

    @property
    def headline(self) -> str:
        """The explanation in one line: `cat (0.93) by bi_token (backward=libra) on mini-vit`."""
        return f"{self.answer} by {self.manner} on {visible(self.model)}"

    @property
    def manner(self) -> str:
        """The method, with its backward if not the plain gradient: `bi_token (backward=libra)`."""
        backward = self.options.get("backward")
        return visible(self.method if backward is None else f"{self.method} (backward={backward})")

    def words(self, aggregate: Aggregate = "sum") -> list[Word]:
        """The words of the text with their scores, in the order of the text.

        Words are separated by spaces; scripts without spaces are split at Unicode's word boundaries.

        Args:
            aggregate: "sum" of the scores of a word's tokens, punctuation included, or "max", the one furthest from 0.

        Returns:
            A `Word` (text, segment, start, end, score) for each word that has a token.

        Raises:
            WhyformerError: If no part or more than one is a text, or `aggregate` has another value.

        Example:
            >>> import whyformer
            >>> [word.text for word in whyformer.explain("A wonderful film.", "mini-bert").words()]
            ['A', 'wonderful', 'film.']
        """
        return only_text(self.parts).words(aggregate)

    def top(self, k: int = 10, by: By | None = None, *, part: str | None = None) -> list[TopItem]:
        """The strongest words, tokens, patches or regions, by absolute score.

        Args:
            k: Maximum number.
            by: The unit to rank: "word", "token", "patch", "region" or "frame". If None, words of texts, and the
                tokens of other parts.
            part: The part to rank. If None, all parts with such units, together.

        Returns:
            At most `k` records (text, position, score, part) with signed scores, strongest first.

        Raises:
            WhyformerError: If no part has such units, no part has that name, or `k` is not a positive integer.

        Example:
            >>> import whyformer
            >>> whyformer.explain("A wonderful film.", "mini-bert").top(1, by="word")[0].text
            'wonderful'
        """
        check_top_count(k)
        parts = dict(self.parts) if part is None else {part: self._part_named(part)}
        able = {name: one for name, one in parts.items() if by is None or by in units_of(one.layout)}
        items = [item for name, one in (able or parts).items() for item in one.top(k, by=by, name=name)]
        return strongest_items(items, k)

    def heatmap(self, part: str | None = None) -> np.ndarray:
        """The scores at every pixel of the picture, interpolated as in the overlay.

        Args:
            part: The name of the part; None for the only one that is a picture.

        Returns:
            A float64 array [height, width] at the picture's size. Pixels without a score (cropped by preprocessing, or
            between regions) are NaN.

        Raises:
            WhyformerError: If the part is a text, no part has that name, or several are pictures and none is named.

        Example:
            >>> import whyformer
            >>> from PIL import Image
            >>> whyformer.explain(Image.new("RGB", (60, 40)), "mini-vit").heatmap().shape
            (40, 60)
        """
        if part is not None:
            return self._part_named(part).heatmap()
        return only_picture(self.parts).heatmap()

    def image(self, *, units: TextUnits = "word") -> Image.Image:
        """Draw the explanation as in a .png file.

        Args:
            units: The unit to colour in texts: "word", or "token" for the model's own tokens.

        Returns:
            A PIL image.

        Example:
            >>> import whyformer
            >>> whyformer.explain("A wonderful film.", "mini-bert").image().mode
            'RGB'
        """
        return figure.explanation_figure(self, units=units)

    def show(self, *, units: TextUnits = "word", where: Where | None = None) -> None:
        """Show the explanation: inline in a notebook, as text in a terminal, or in the browser from a script.

        Args:
            units: The unit to colour in texts: "word", or "token" for the model's own tokens.
            where: "notebook", "terminal" or "browser". If None, it is detected.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            >>> import whyformer
            >>> whyformer.explain("A wonderful film.", "mini-bert").show(where="terminal")  # doctest: +ELLIPSIS
            positive (...) by evidence on mini-bert
            ...wonderful...
        """
        show(
            fragment=lambda: html.explanation_fragment(self, units=units),
            text=lambda: terminal.explanation_text(self, units=units),
            page=lambda: html.html_page([self], units=units),
            where=where,
        )

    def plot(self, ax: Any = None, *, part: str | None = None) -> Any:
        """Draw on a matplotlib axis: a picture with its heatmap, or bars for the strongest words of a text.

        Args:
            ax: The axis to draw on. If None, one in a new figure.
            part: The name of the part. If None, the only one.

        Returns:
            The axis.

        Raises:
            WhyformerError: If matplotlib is missing, no part has that name, or there are several and none is named.

        Example:
            >>> import matplotlib
            >>> matplotlib.use("agg")
            >>> import whyformer
            >>> axis = whyformer.explain("A wonderful film.", "mini-bert").plot()
            >>> axis.get_yticklabels()[0].get_text()
            'wonderful'
        """
        one = self._only_part("plot()", "plot(part={!r})") if part is None else self._part_named(part)
        return plot_part(one, self.headline, ax)

    def to_dict(self) -> dict[str, Any]:
        """Convert to numbers, strings, lists and dicts that `json` can serialise.

        Files add pixels, format and version, `whyformer explain --json` the input's name.

        Returns:
            target, probability, method, model, options, notes, completeness, and the parts by name. A part has
            its layout, tokens, scores, and the position of the tokens (rows, columns, box; boxes; texts, segments,
            offsets; or rate, first, step for a sound).

        Example:
            >>> import whyformer
            >>> whyformer.explain("A wonderful film.", "mini-bert").to_dict()["parts"]["text"]["texts"]
            ['A wonderful film.']
        """
        from whyformer.results.schema import explanation_dict

        return explanation_dict(self)

    def to_pandas(self) -> Any:
        """Convert to a pandas table with a row for each token.

        Returns:
            A DataFrame with the columns part, token and score. Depending on the parts it also has row and column
            (counted from 1), left, top, right and bottom (pixels), segment, start and end (characters), from_second,
            to_second, from_hertz and to_hertz. Target, method and model are in its `attrs`.

        Raises:
            WhyformerError: If pandas is missing.

        Example:
            >>> import whyformer
            >>> list(whyformer.explain("A wonderful film.", "mini-bert").to_pandas().columns)
            ['part', 'token', 'score', 'segment', 'start', 'end']
        """
        from whyformer.results.dataframes import explanation_frame

        return explanation_frame(self)

    def save(self, path: str | Path, *, units: TextUnits = "word", what_if: bool = True) -> None:
        """Save to a .html, .png, .json, .npz or .audit.json file, atomically.

        Args:
            path: The file; its suffix determines the format. `load` reads .json and .npz, `verify` .audit.json.
            units: The unit to colour in texts of .html and .png: "word", or "token" for the model's own tokens.
            what_if: Whether a .html lets its reader remove words or patches: up to 34 forward passes, now.

        Raises:
            WhyformerError: If the suffix is of no known format.
            OSError: If the file cannot be written.

        Example:
            >>> import tempfile, whyformer
            >>> explanation = whyformer.explain("A wonderful film.", "mini-bert")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     explanation.save(f"{folder}/film.json")
            ...     whyformer.Explanation.load(f"{folder}/film.json") == explanation
            True
        """
        from whyformer.results import storage

        storage.write(self, Path(path), units=units, what_if=what_if)

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Load a .json or .npz file written by `save`.

        Args:
            path: The file.

        Returns:
            The explanation, with bit-identical scores and pixels.

        Raises:
            WhyformerError: If the file is damaged, too large, or not an explanation.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __str__(self) -> str:
        return terminal.explanation_text(self)

    def __repr__(self) -> str:
        parts = ", ".join(f"{visible(name)}: {part.layout.summary}" for name, part in self.parts.items())
        return f"<Explanation of {self.headline}; {parts}>"

    def _repr_html_(self) -> str:
        return html.explanation_fragment(self)

    def _part_named(self, name: str) -> Part:
        if name not in self.parts:
            raise WhyformerError(f"No part named {name!r}. Known: {part_names(self.parts)}.")
        return self.parts[name]

    def _only_part(self, attribute: str, call: str = "") -> Part:
        if len(self.parts) > 1:
            raise WhyformerError(several_parts(self.parts, attribute, call))
        (part,) = self.parts.values()
        return part
