"""Continuations: a text written by a model, with an explanation of each token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.render import figure, response_page, terminal
from whyformer.render.plot import plot_matrix
from whyformer.render.show import Where, show
from whyformer.render.text_spans import TextUnits, visible
from whyformer.results.explanation import Explanation
from whyformer.results.part import Aggregate, By, TopItem, Word


@dataclass(frozen=True)
class Continuation:
    """A model's continuation of a text, with an explanation of each token.

    Returned by `continuation`. `print` shows it in the terminal; a notebook displays it as a page.

    Attributes:
        text: The text written by the model.
        explanations: An Explanation of each of its tokens, by the preceding ones.
        priors: The log-probability of each token after the same prompt with blank pictures, if requested:
            how likely the words alone make it.

    Raises:
        WhyformerError: If there are no explanations, or not one prior per token.

    Example:
        >>> import whyformer
        >>> continuation = whyformer.continuation("The film was", tokens=3)
        >>> len(continuation.tokens), "".join(continuation.tokens) == continuation.text
        (3, True)
    """

    text: str
    explanations: tuple[Explanation, ...]
    priors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.explanations:
            raise WhyformerError("A continuation has at least one token, but explanations is empty.")
        if len(self.priors) not in (0, len(self.explanations)):
            raise WhyformerError(f"There are {len(self.priors)} priors for {len(self.explanations)} tokens.")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the text."""
        return tuple(explanation.target for explanation in self.explanations)

    @property
    def picture_gains(self) -> tuple[float, ...]:
        """The log-probability that the pictures add to each token, in nats; empty without priors.

        Near 0, the words before it make the token as likely as the pictures do; below 0, the pictures make it less so.
        """
        chances = [one.probability for one in self.explanations]
        least = math.ulp(0.0)  # a probability that rounds to 0
        return tuple(
            math.log(max(chance, least)) - prior
            for chance, prior in zip(chances, self.priors, strict=False)
            if chance is not None
        )

    @property
    def headline(self) -> str:
        """The continuation in one line: `a great film by bi_token on mini-gpt`."""
        first = self.explanations[0]
        return f"{visible(self.text.strip() or self.text)} by {first.manner} on {visible(first.model)}"

    def matrix(self, part: str | None = None) -> np.ndarray:
        """Scores [written token, token before it].

        Args:
            part: The stream, if there are two: "source", or "target" for the text so far. If None, the first.

        Returns:
            A float array; tokens that did not exist yet have 0.

        Raises:
            WhyformerError: If no part has that name.

        Example:
            >>> import whyformer
            >>> whyformer.continuation("The film was", tokens=3).matrix().shape
            (3, 5)
        """
        name = self._part_name(part)
        rows = [x.parts[name].scores if name in x.parts else np.zeros(0, dtype=np.float32) for x in self.explanations]
        widest = max(map(len, rows))
        return np.stack([np.pad(row, (0, widest - len(row))) for row in rows])

    def words(self, aggregate: Aggregate = "sum", *, part: str | None = None) -> list[list[Word]]:
        """The words before each written token, with their scores, in the order of the text.

        Args:
            aggregate: "sum" of the scores of a word's tokens, punctuation included, or "max", the one furthest from 0.
            part: The stream, if there are two: "source" or "target". If None, the first.

        Returns:
            For each written token, a list with a `Word` (text, segment, start, end, score) for each word before it.

        Raises:
            WhyformerError: If `aggregate` has another value, or no part has that name.

        Example:
            >>> import whyformer
            >>> [word.text for word in whyformer.continuation("The film was", tokens=2).words()[0]]
            ['The', 'film', 'was']
        """
        name = self._part_name(part)
        # The decoder's stream is empty before its first token.
        return [x.parts[name].words(aggregate) if name in x.parts else [] for x in self.explanations]

    def top(self, k: int = 10, by: By | None = None, *, part: str | None = None) -> list[list[TopItem]]:
        """The strongest words or tokens before each written token, by absolute score.

        Args:
            k: Maximum number for each written token.
            by: The unit to rank: "word" (the default) or "token".
            part: The stream, if there are two: "source" or "target". If None, both together.

        Returns:
            For each written token, a list of at most `k` records (text, position, score, part), strongest first.

        Raises:
            WhyformerError: If `by` or `part` has another value, or `k` is not a positive integer.

        Example:
            >>> import whyformer
            >>> [len(items) for items in whyformer.continuation("The film was", tokens=3).top(2)]
            [2, 2, 2]
        """
        name = part if part is None else self._part_name(part)
        # The decoder's stream is empty before its first token.
        return [x.top(k, by, part=name) if name is None or name in x.parts else [] for x in self.explanations]

    def image(self, *, units: TextUnits = "word") -> Image.Image:
        """Draw the continuation as in a .png file.

        Args:
            units: The unit to colour: "word", or "token" for the model's own tokens.

        Returns:
            A PIL image.

        Example:
            >>> import whyformer
            >>> whyformer.continuation("The film was", tokens=3).image().mode
            'RGB'
        """
        return figure.continuation_figure(self, units=units)

    def show(self, *, where: Where | None = None) -> None:
        """Show the continuation: inline in a notebook, as text in a terminal, or in the browser from a script.

        Args:
            where: "notebook", "terminal" or "browser". If None, it is detected.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            >>> import whyformer
            >>> whyformer.continuation("The film was", tokens=2).show(where="terminal")  # doctest: +ELLIPSIS
            a ... on mini-gpt
            ...
        """
        show(
            fragment=lambda: response_page.continuation_fragment(self),
            text=lambda: terminal.continuation_text(self),
            page=lambda: response_page.continuation_page(self),
            where=where,
        )

    def plot(self, ax: Any = None, *, part: str | None = None) -> Any:
        """Draw the matrix on a matplotlib axis: a row for each written token, a column for each token before it.

        Args:
            ax: The axis to draw on. If None, one in a new figure.
            part: The stream, where there are two: "source" or "target". If None, the first.

        Returns:
            The axis.

        Raises:
            WhyformerError: If matplotlib is missing, or no part has that name.

        Example:
            >>> import matplotlib
            >>> matplotlib.use("agg")
            >>> import whyformer
            >>> axis = whyformer.continuation("The film was", tokens=2).plot()
            >>> [label.get_text() for label in axis.get_xticklabels()][:3]
            ['The', 'film', 'was']
        """
        name = self._part_name(part)
        last = self.explanations[-1]  # which follows all the others
        if name not in last.parts:
            raise WhyformerError(f"Nothing was written before the last token: part {name!r} is empty.")
        return plot_matrix(self, self.matrix(name), last.parts[name], ax)

    def to_dict(self) -> dict[str, Any]:
        """Convert to numbers, strings, lists and dicts that `json` can serialise.

        Returns:
            The text, and the explanation of each token as in `Explanation.to_dict`.

        Example:
            >>> import whyformer
            >>> list(whyformer.continuation("The film was", tokens=2).to_dict())
            ['text', 'explanations']
        """
        from whyformer.results.schema import continuation_dict

        return continuation_dict(self)

    def to_pandas(self) -> Any:
        """Convert to a pandas table with a row for each pair of a written token and a token before it.

        Returns:
            A DataFrame with the columns written (an index), written_token, and those of `Explanation.to_pandas`.

        Raises:
            WhyformerError: If pandas is missing.

        Example:
            >>> import whyformer
            >>> len(whyformer.continuation("The film was", tokens=2).to_pandas())  # 3 tokens before the first, then 4
            7
        """
        from whyformer.results.dataframes import continuation_frame

        return continuation_frame(self)

    def save(self, path: str | Path, *, units: TextUnits = "word") -> None:
        """Save to a .html, .png, .json or .npz file, atomically.

        Args:
            path: The file; its suffix determines the format. `load` reads .json and .npz.
            units: The unit to colour in a .png file: "word", or "token" for the model's own tokens.

        Raises:
            WhyformerError: If the suffix is of no known format.
            OSError: If the file cannot be written.

        Example:
            >>> import tempfile, whyformer
            >>> continuation = whyformer.continuation("The film was", tokens=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     continuation.save(f"{folder}/film.npz")
            ...     whyformer.Continuation.load(f"{folder}/film.npz") == continuation
            True
        """
        from whyformer.results import storage

        storage.write(self, Path(path), units=units)

    @classmethod
    def load(cls, path: str | Path) -> Continuation:
        """Load a .json or .npz file written by `save`.

        Args:
            path: The file.

        Returns:
            The continuation, with bit-identical scores.

        Raises:
            WhyformerError: If the file is damaged, too large, or not a continuation.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __str__(self) -> str:
        return terminal.continuation_text(self)

    def __repr__(self) -> str:
        return f"<Continuation {self.headline}; {len(self.explanations)} tokens>"

    def _repr_html_(self) -> str:
        return response_page.continuation_fragment(self)

    def _part_name(self, part: str | None) -> str:
        """Validate the name of a part; by default the first."""
        first = next(iter(self.explanations[0].parts))
        known = (first, "target") if first in ("source", "audio") else (first,)
        if part is not None and part not in known:
            raise WhyformerError(f"No part named {part!r}. Known: {', '.join(known)}.")
        return part or first
