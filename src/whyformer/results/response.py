"""Responses: which parts of a prompt each span of a model's response depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from whyformer.results import response_parts
from whyformer.results.part import check_top_count
from whyformer.results.response_parts import PartScores, ResponseToken, Sinks, TopSource
from whyformer.results.source_pooling import SourceAggregate, all_source_scores, groups_of, pooled, shares
from whyformer.results.support import Support


@dataclass(frozen=True, eq=False)
class Response:
    """The explanation of a response: a score for each of its spans and each source in the prompt.

    Returned by `explain_response`. `print` shows it in the terminal; a notebook displays it as a page.

    Attributes:
        prompt: The prompt: its text, tokens, messages and documents.
        text: The response.
        tokens: Its tokens, each with its log-probability, entropy and rank, and the likeliest other tokens.
        rows: The explained spans of the response.
        sources: The parts of the prompt that they may depend on; pictures and sounds first, each as a whole.
        scores: A float32 array [row, source].
        method: The name of the method.
        model: The name of the model.
        token_scores: A float32 array [row, token of the prompt], sinks included; None if the method scores sources.
        parts: The pictures of the prompt ("image", or "image 1" and so on) or its sound ("audio"), with scores
            [row, token] of their patches or frames.
        earlier: A float32 array [row, token of the response]: the scores of earlier tokens of the response.
        focus: A float32 array [row, token of the response]: the weights of the tokens in the explained scores; None if
            each token of a row has weight 1.
        sinks: The shares of attention sinks in each row; empty if the method scores sources.
        aggregate: How the scores of a source's tokens are combined.
        leaves_out_sinks: Whether the first token's score is excluded from its source.
        options: The method's options.
        notes: Caveats for the reader, in sentences.
        seed: The sampling seed of the response; None if it was given, or decoded greedily.
        verdicts: The verdict on each row, if it was explained with support=True.
        audit: Returns the content of its audit file; None for a response loaded from a file, or of a served model.
        support_of: Assesses the support of a response that was just explained; None for one loaded from a file.

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
    focus: SpanScores | None = None
    sinks: tuple[Sinks, ...] = ()
    aggregate: SourceAggregate = "positive"
    leaves_out_sinks: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seed: int | None = None
    verdicts: Support | None = None
    audit: Callable[[Response], dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    support_of: Callable[..., Support] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.rows)
        response_parts.check_score_array("scores", self.scores, (rows, len(self.sources)))
        if self.token_scores is not None:
            response_parts.check_score_array("token_scores", self.token_scores, (rows, len(self.prompt.tokens)))
        for name, values in {"earlier": self.earlier, "focus": self.focus}.items():
            if values is not None:
                response_parts.check_score_array(name, values, (rows, len(self.tokens)))
        for name, part in self.parts.items():
            response_parts.check_score_array(name, part.scores, (rows, part.layout.size))

    @property
    def headline(self) -> str:
        """The response in one line: `great. by rollout on mini-llm`."""
        return f"{visible(self.text.strip() or self.text)} by {self.manner} on {visible(self.model)}"

    @property
    def manner(self) -> str:
        """The method, with its backward if not the plain gradient: `bi_token (backward=libra)`."""
        backward = self.options.get("backward")
        return visible(self.method if backward is None else f"{self.method} (backward={backward})")

    @property
    def log_probability(self) -> float:
        """The sum of the tokens' log-probabilities in nats, without special tokens."""
        return float(sum(token.log_probability for token in self.tokens if not token.is_special))

    @property
    def share(self) -> SourceScores:
        """The share of each source in its row's absolute scores: an array [row, source]."""
        return shares(self.scores)

    def support(self, **options: Any) -> Support:
        """Judge for each row whether the sources made the model write it, with the figures behind each verdict.

        Args:
            **options: `budget`, the maximum number of forward passes; `alone=True` to try each source alone, too;
                `judge` to ask the model itself or not, by default if its calibration uses the answer. `citations` is
                a regular expression with a group around a name or number, or a mapping from markers to names.

        Returns:
            A Support: a verdict per row, with figures in nats.

        Raises:
            WhyformerError: If the response was loaded from a file, its model is no longer in memory, its prompt has
                pictures or sounds, or an option is invalid.

        Example:
            >>> prompt = "Vera is in Manila. Paul gave the mirror to Vera. Where is the mirror?"
            >>> len(whyformer.explain_response(prompt, " The mirror is in Lima.").support().units)
            1
        """
        if self.support_of is None:
            raise WhyformerError("This response was loaded from a file: explain it again for its support.")
        return self.support_of(**options)

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
        """Regroup the scores by other sources of the text, without running the model; pictures are kept.

        Args:
            sources: "token", "word", "sentence", "paragraph", "message", "document", or a list of (start, end) in
                characters of the prompt's text. If None, the current ones.
            aggregate: How the scores of a source's tokens are combined: "positive" sums those above 0, "sum" all of
                them, "mean" averages them, "max" is the one furthest from 0. If None, the current one. A single token
                keeps its score.

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
        kinds = {source.kind for source in response_parts.part_sources(self.parts)}
        of_text = tuple(source for source in self.sources if source.kind not in kinds)
        chosen = of_text if sources is None else sources_of(self.prompt, sources)
        if self.token_scores is None:
            scores = pooled(self.scores, groups_of(self.sources, chosen, self.method), aggregate)
        else:
            leave_out = self.leaves_out_sinks
            scores = all_source_scores(self.parts, self.token_scores, chosen, aggregate, leave_out_first=leave_out)
        return replace(
            self, sources=(*response_parts.part_sources(self.parts), *chosen), scores=scores, aggregate=aggregate
        )

    def top(self, k: int = 5, row: int | None = None) -> list[TopSource]:
        """The strongest sources, by absolute score.

        Args:
            k: Maximum number.
            row: The index of the row. If None, sources are ranked by the sum over all rows.

        Returns:
            At most `k` records (source, score, share), strongest first, without sources of score 0.

        Raises:
            WhyformerError: If `k` is not a positive integer, or there is no such row.

        Example:
            >>> response = whyformer.explain_response("The film was", " dull", method="rollout", sinks="keep")
            >>> [item.source.text for item in response.top(2)]
            ['The', 'film']
        """
        check_top_count(k)
        response_parts.check_row(row, len(self.rows))
        scores = self.scores.sum(axis=0) if row is None else self.scores[row]
        portions = shares(scores[None])[0]
        order = np.argsort(-portions, kind="stable")[:k]
        return [
            TopSource(self.sources[number], float(scores[number]), float(portions[number]))
            for number in order.tolist()
            if portions[number] > 0
        ]

    def image(self, row: int | None = None) -> Image.Image:
        """Draw the response and its sources as in a .png file.

        Args:
            row: The index of the row whose sources are coloured and ranked. If None, all rows together.

        Returns:
            A PIL image.

        Raises:
            WhyformerError: If there is no such row.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").image().mode
            'RGB'
        """
        response_parts.check_row(row, len(self.rows))
        return response_figure(self, row)

    def show(self, *, where: Where | None = None) -> None:
        """Show the response: inline in a notebook, as text in a terminal, or in the browser from a script.

        Args:
            where: "notebook", "terminal" or "browser". If None, it is detected.

        Raises:
            WhyformerError: If `where` has another value.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").show(where="terminal")
            dull by rollout on mini-llm
            ...
        """
        show(
            fragment=lambda: page.response_fragment(self),
            text=lambda: response_text(self),
            page=lambda: page.response_page(self),
            where=where,
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to numbers, strings, lists and dicts that `json` can serialise.

        Returns:
            The fields of the Response by name; tokens as one list per field.

        Example:
            >>> whyformer.explain_response("The film was", " dull", method="rollout").to_dict()["prompt"]["text"]
            'The film was'
        """
        from whyformer.results.response_schema import response_dict

        return response_dict(self)

    def to_pandas(self) -> Any:
        """Convert to a pandas table with a row for each pair of a span and a source.

        Returns:
            A DataFrame with the columns row (an index), span, source (an index), kind, name, text, start, end, score
            and share. The response, the method and the model are in its `attrs`.

        Raises:
            WhyformerError: If pandas is missing.

        Example:
            >>> len(whyformer.explain_response("The film was", " dull", method="rollout").to_pandas())
            3
        """
        from whyformer.results.dataframes import response_frame

        return response_frame(self)

    def save(self, path: str | Path) -> None:
        """Save to a .html, .png, .json, .npz or .audit.json file, atomically.

        Args:
            path: The file; its suffix determines the format. `load` reads .json and .npz, `verify` .audit.json.

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
        """Load a .json or .npz file written by `save`.

        Args:
            path: The file.

        Returns:
            The response, with bit-identical scores.

        Raises:
            WhyformerError: If the file is damaged, too large, or not a response.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.results import storage

        return storage.read(Path(path), cls)

    def __eq__(self, other: object) -> bool:
        return response_parts.same_fields(self, other) if isinstance(other, Response) else NotImplemented

    def __str__(self) -> str:
        return response_text(self)

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(source.kind for source in self.sources))
        return f"<Response {self.headline}; {len(self.rows)} spans, {len(self.sources)} sources ({one_line(kinds)})>"

    def _repr_html_(self) -> str:
        return page.response_fragment(self)
