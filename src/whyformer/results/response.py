"""The result of asking why a model responded as it did: what of the response comes from what of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.axes import SourceScores, SpanScores
from whyformer.errors import WhyformerError, check_choice
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.sources import Source, Sources, sources_of
from whyformer.inputs.spans import Span
from whyformer.render import response_page as page
from whyformer.render.response_figure import response_figure
from whyformer.render.response_text import response_text
from whyformer.render.show import Where, show
from whyformer.render.text_spans import one_line, visible
from whyformer.results.part import check_top_count
from whyformer.results.response_parts import PART_KINDS, PartScores, ResponseToken, Sinks, TopSource, part_sources
from whyformer.results.source_pooling import SourceAggregate, all_source_scores, groups_of, pooled, shares


@dataclass(frozen=True, eq=False)
class Response:
    """Why a model responded as it did: a score for each span of the response and each source in the prompt.

    `explain_response` makes it. Printed, it shows itself in the terminal; a notebook displays it as a page.

    Attributes:
        prompt: The prompt: its text, tokens, messages and documents.
        text: The response.
        tokens: Its tokens, each with its log-probability, entropy and rank.
        rows: The spans of the response that are explained.
        sources: The parts of the prompt that they come from; pictures and sounds first, each as a whole.
        scores: A float32 array [row, source].
        method: The name of the method.
        model: The name of the model.
        token_scores: A float32 array [row, token of the prompt], sinks included; None where the method scores sources.
        parts: The pictures of the prompt ("image", or "image 1" and so on) or its sound ("audio"), with scores
            [row, token] of their patches or frames.
        earlier: A float32 array [row, token of the response]: what falls on what the response had said before.
        sinks: For each row the shares of tokens that say nothing; empty where the method scores sources.
        aggregate: How a source's score is made of its tokens'.
        leaves_out_sinks: Whether the first token's score is left out of its source.
        options: The method's options.
        notes: What a reader must know, in sentences.
        seed: The seed that the response was sampled with; None where it was given, or each token is the likeliest.

    Raises:
        WhyformerError: If scores are not float32 [row, source], or not finite.

    Example:
        >>> response = whyformer.explain_response("The film was dull. The music was", " great.", method="rollout")
        >>> response.scores.shape, [source.text for source in response.sources]
        ((1, 2), ['The film was dull.', 'The music was'])
    """

    prompt: Prompt
    text: str
    tokens: tuple[ResponseToken, ...]
    rows: tuple[Span, ...]
    sources: tuple[Source, ...]
    scores: SourceScores
    method: str
    model: str
    token_scores: SpanScores | None = None
    parts: Mapping[str, PartScores] = field(default_factory=dict)
    earlier: SpanScores | None = None
    sinks: tuple[Sinks, ...] = ()
    aggregate: SourceAggregate = "positive"
    leaves_out_sinks: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        rows = len(self.rows)
        self._check("scores", self.scores, (rows, len(self.sources)))
        if self.token_scores is not None:
            self._check("token_scores", self.token_scores, (rows, len(self.prompt.tokens)))
        if self.earlier is not None:
            self._check("earlier", self.earlier, (rows, len(self.tokens)))
        for name, part in self.parts.items():
            self._check(name, part.scores, (rows, part.layout.size))

    @property
    def headline(self) -> str:
        """The response in a line: `␣great. by rollout on mini-llm`."""
        return f"{visible(self.text)} by {self.manner} on {visible(self.model)}"

    @property
    def manner(self) -> str:
        """The method, and how its gradients were taken if not as gradients: `bi_token (backward=libra)`."""
        backward = self.options.get("backward")
        return visible(self.method if backward is None else f"{self.method} (backward={backward})")

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities, in nats; special ones left out."""
        return float(sum(token.log_probability for token in self.tokens if not token.is_special))

    @property
    def share(self) -> SourceScores:
        """The share of each source in its row, by the size of the scores: an array [row, source]."""
        return shares(self.scores)

    def matrix(self) -> SourceScores:
        """The scores, a row for each span of the response and a column for each source.

        Returns:
            A float32 array [row, source].

        Example:
            >>> whyformer.explain_response("The film was", " very dull", units="word", method="rollout").matrix().shape
            (2, 3)
        """
        return self.scores

    def by(self, sources: Sources = None, aggregate: SourceAggregate | None = None) -> Response:
        """The same scores for other sources of the text, without asking the model again; pictures stay as they are.

        Args:
            sources: "token", "word", "sentence", "paragraph", "message", "document", or a list of (start, end) in
                characters of the prompt's text. If None, those that there are.
            aggregate: What a source has of its tokens' scores: "positive" adds up those above 0, "sum" all with their
                sign, "mean" is their mean, "max" the one furthest from 0. If None, as it was. A token has its own.

        Returns:
            A Response with those sources.

        Raises:
            WhyformerError: If the prompt has no such sources, or the method scored larger ones.

        Example:
            >>> response = whyformer.explain_response("The film was dull. The music was", " great.", method="rollout")
            >>> [source.text for source in response.by("word").sources][:3]
            ['The', 'film', 'was']
        """
        aggregate = self.aggregate if aggregate is None else aggregate
        check_choice("aggregate", aggregate, SourceAggregate)
        of_text = tuple(source for source in self.sources if source.kind not in PART_KINDS)
        chosen = of_text if sources is None else sources_of(self.prompt, sources)
        if self.token_scores is None:
            scores = pooled(self.scores, groups_of(self.sources, chosen, self.method), aggregate)
        else:
            leave_out = self.leaves_out_sinks
            scores = all_source_scores(self.parts, self.token_scores, chosen, aggregate, leave_out_first=leave_out)
        return replace(self, sources=(*part_sources(self.parts), *chosen), scores=scores, aggregate=aggregate)

    def top(self, k: int = 5, row: int | None = None) -> list[TopSource]:
        """The strongest sources, by the size of their scores.

        Args:
            k: How many at most.
            row: The number of the row. If None, sources are ranked by the sum over all rows.

        Returns:
            At most `k` records (source, score, share), the strongest first; those that have nothing are left out.

        Raises:
            WhyformerError: If `k` is not a positive integer, or there is no such row.

        Example:
            >>> response = whyformer.explain_response("The film was", " dull", method="rollout", sinks="keep")
            >>> [item.source.text for item in response.top(2)]
            ['The', 'film']
        """
        check_top_count(k)
        self._check_row(row)
        scores = self.scores.sum(axis=0) if row is None else self.scores[row]
        portions = shares(scores[None])[0]
        order = np.argsort(-portions, kind="stable")[:k]
        return [
            TopSource(self.sources[number], float(scores[number]), float(portions[number]))
            for number in order.tolist()
            if portions[number] > 0
        ]

    def image(self, row: int | None = None) -> Image.Image:
        """The response and its sources as a picture, as it is saved to a .png file.

        Args:
            row: The number of the row whose sources are coloured and ranked. If None, those of all rows together.

        Returns:
            A PIL image.

        Raises:
            WhyformerError: If there is no such row.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").image().mode
            'RGB'
        """
        self._check_row(row)
        return response_figure(self, row)

    def show(self, *, where: Where | None = None) -> None:
        """Show the response: inline in a notebook, printed on a terminal, from a script in the browser.

        Args:
            where: "notebook", "terminal" or "browser". If None, where this runs.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").show(where="terminal")
            ␣dull by rollout on mini-llm
            ...
        """
        show(
            fragment=lambda: page.response_fragment(self),
            text=lambda: response_text(self),
            page=lambda: page.response_page(self),
            where=where,
        )

    def to_dict(self) -> dict[str, Any]:
        """The response as numbers, strings, lists and dicts, which `json` can write.

        Returns:
            The fields of a Response by name; tokens as a list for each of their fields.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").to_dict()["prompt"]["text"]
            'The film was'
        """
        from whyformer.results.response_schema import response_dict

        return response_dict(self)

    def to_pandas(self) -> Any:
        """The response as a pandas table with a row for each pair of a span and a source.

        Returns:
            A DataFrame with the columns row (a number from 0), span, source (a number from 0), kind, name, text, start,
            end, score and share. The response, the method and the model are in its `attrs`.

        Raises:
            WhyformerError: If pandas is missing.

        Example:
            >>> len(whyformer.explain_response("The film was", " dull", method="rollout").to_pandas())
            3
        """
        from whyformer.results.dataframes import response_frame

        return response_frame(self)

    def save(self, path: str | Path) -> None:
        """Write to a .html, .png, .json or .npz file; an error leaves the folder as it was.

        Args:
            path: The file; its suffix says the format. `load` reads .json and .npz back.

        Raises:
            WhyformerError: If the suffix is of no known format.
            OSError: If the file cannot be written.

        Example:
            >>> import tempfile
            >>> response = whyformer.explain_response("The film was", " dull", method="rollout")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     response.save(f"{folder}/film.npz")
            ...     whyformer.Response.load(f"{folder}/film.npz") == response
            True
        """
        from whyformer.results import storage

        storage.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Response:
        """Read back what `save` wrote to a .json or .npz file.

        Args:
            path: The file.

        Returns:
            The response, scores bit for bit.

        Raises:
            WhyformerError: If the file is damaged, too large, or not a response.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Response):
            return NotImplemented
        return all(_same(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    def __str__(self) -> str:
        return response_text(self)

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(source.kind for source in self.sources))
        return f"<Response {self.headline}; {len(self.rows)} spans, {len(self.sources)} sources ({one_line(kinds)})>"

    def _repr_html_(self) -> str:
        return page.response_fragment(self)

    def _check(self, name: str, values: np.ndarray, shape: tuple[int, int]) -> None:
        if getattr(values, "dtype", None) != np.float32 or values.shape != shape or not np.isfinite(values).all():
            kind = f"{getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}"
            raise WhyformerError(f"{name} of a response are finite float32 of shape {shape}, not {kind}.")

    def _check_row(self, row: int | None) -> None:
        if row is not None and (type(row) is not int or not -len(self.rows) <= row < len(self.rows)):
            raise WhyformerError(f"row={row!r}: the response has {len(self.rows)} rows, 0 to {len(self.rows) - 1}.")


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return bool(first == second)
