"""The result of letting a model write: why each token of what it wrote."""

from __future__ import annotations

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

    `continuation` makes it. Printed, it shows itself in the terminal; a notebook displays it as a page.

    Attributes:
        text: What was written.
        explanations: An Explanation for each token of it, by what came before.

    Raises:
        WhyformerError: If there are no explanations.

    Example:
        >>> import whyformer
        >>> continuation = whyformer.continuation("The film was", tokens=3)
        >>> len(continuation.tokens), "".join(continuation.tokens) == continuation.text
        (3, True)
    """

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
        first = self.explanations[0]
        return f"{visible(self.text)} by {first.manner} on {visible(first.model)}"

    def matrix(self, part: str | None = None) -> np.ndarray:
        """Scores [written token, token before it].

        Args:
            part: The stream, where there are two: "source", or "target" for what was written. If None, the first.

        Returns:
            A float array; tokens that were not yet there have 0.

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
        """For each token written, the words before it with their scores, in the order of the text.

        Args:
            aggregate: "sum" of the scores of a word's tokens, punctuation included, or "max", the one furthest from 0.
            part: The stream, where there are two: "source" or "target". If None, the first.

        Returns:
            A list for each token written, of a `Word` (text, segment, start, end, score) for each word before it.

        Raises:
            WhyformerError: If `aggregate` has another value, or no part has that name.

        Example:
            >>> import whyformer
            >>> [word.text for word in whyformer.continuation("The film was", tokens=2).words()[0]]
            ['The', 'film', 'was']
        """
        name = self._part_name(part)
        # Before its first token, a decoder has written nothing.
        return [x.parts[name].words(aggregate) if name in x.parts else [] for x in self.explanations]

    def top(self, k: int = 10, by: By | None = None, *, part: str | None = None) -> list[list[TopItem]]:
        """For each token written, the strongest words or tokens before it, by the size of their scores.

        Args:
            k: How many at most for each token written.
            by: What is ranked: "word" (as if None) or "token".
            part: The stream, where there are two: "source" or "target". If None, both together.

        Returns:
            A list for each token written, of at most `k` records (text, position, score, part), the strongest first.

        Raises:
            WhyformerError: If `by` or `part` has another value, or `k` is not a positive integer.

        Example:
            >>> import whyformer
            >>> [len(items) for items in whyformer.continuation("The film was", tokens=3).top(2)]
            [2, 2, 2]
        """
        name = part if part is None else self._part_name(part)
        # Before its first token, a decoder has written nothing.
        return [x.top(k, by, part=name) if name is None or name in x.parts else [] for x in self.explanations]

    def image(self, *, units: TextUnits = "word") -> Image.Image:
        """The continuation as a picture, as it is saved to a .png file.

        Args:
            units: What is coloured: "word", or "token" for the pieces that the model reads.

        Returns:
            A PIL image.

        Example:
            >>> import whyformer
            >>> whyformer.continuation("The film was", tokens=3).image().mode
            'RGB'
        """
        return figure.continuation_figure(self, units=units)

    def show(self, *, where: Where | None = None) -> None:
        """Show the continuation: inline in a notebook, printed on a terminal, from a script in the browser.

        Args:
            where: "notebook", "terminal" or "browser". If None, where this runs.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            >>> import whyformer
            >>> whyformer.continuation("The film was", tokens=2).show(where="terminal")  # doctest: +ELLIPSIS
            ␣... on mini-gpt
            ...
        """
        show(
            fragment=lambda: response_page.continuation_fragment(self),
            text=lambda: terminal.continuation_text(self),
            page=lambda: response_page.continuation_page(self),
            where=where,
        )

    def plot(self, ax: Any = None, *, part: str | None = None) -> Any:
        """Draw the matrix on a matplotlib axis: a row for each token written, a column for each token before it.

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
        last = self.explanations[-1]  # which has seen all the others
        if name not in last.parts:
            raise WhyformerError(f"Nothing was written before the last token: part {name!r} is empty.")
        return plot_matrix(self, self.matrix(name), last.parts[name], ax)

    def to_dict(self) -> dict[str, Any]:
        """The continuation as numbers, strings, lists and dicts, which `json` can write.

        Returns:
            The text, and the explanation of each token as `Explanation.to_dict` has it.

        Example:
            >>> import whyformer
            >>> list(whyformer.continuation("The film was", tokens=2).to_dict())
            ['text', 'explanations']
        """
        from whyformer.results.schema import continuation_dict

        return continuation_dict(self)

    def to_pandas(self) -> Any:
        """The continuation as a pandas table with a row for each pair of a token written and a token before it.

        Returns:
            A DataFrame with the columns written (a number from 0), written_token, and those of `Explanation.to_pandas`.

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
        """Write to a .html, .png, .json or .npz file; an error leaves the folder as it was.

        Args:
            path: The file; its suffix says the format. `load` reads .json and .npz back.
            units: What is coloured in a .png file: "word", or "token" for the pieces that the model reads.

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
        """Read back what `save` wrote to a .json or .npz file.

        Args:
            path: The file.

        Returns:
            The continuation, scores bit for bit.

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
        """The part's name checked; without one, the first."""
        first = next(iter(self.explanations[0].parts))
        known = (first, "target") if first in ("source", "audio") else (first,)
        if part is not None and part not in known:
            raise WhyformerError(f"No part named {part!r}. Known: {', '.join(known)}.")
        return part or first
