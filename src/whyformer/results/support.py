"""Support: for each sentence of a response, whether the sources made the model write it, with the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from whyformer.inputs.sources import Source
from whyformer.inputs.verdicts import FAULTS, NOT_CALIBRATED, VERDICTS, Verdict

CitationStatus = Literal["used", "supports but was not used", "does not support", "unknown source"]


# Nats per token by which a rival may be less likely than the model's own answer, or than a short one of half its
# length at most: "Unknown has the hat." is no rival.
LEAST_LIKELY, LEAST_LIKELY_OF_SHORT = 3.0, 2.0


@dataclass(frozen=True)
class SourceFigures:
    """The effect of one source on one unit, in nats; None where it was not measured.

    Attributes:
        source: Its number in `Support.sources`.
        necessity: How much the unit's log-probability falls without it.
        sufficiency: How much it rises with this source alone, over none.
        score: Its signed white-box score.
        judgement: How much the log-odds of "it follows" fall without it.
    """

    source: int
    necessity: float | None = None
    sufficiency: float | None = None
    score: float | None = None
    judgement: float | None = None


@dataclass(frozen=True)
class ValueFigures:
    """The figures of the value of a unit: of its content words that the question does not have. In nats.

    Attributes:
        tokens: The number of their tokens.
        log_probability: With all sources.
        without_sources: Without any source.
        score: The largest signed white-box score of a source; None where it was not measured.
        share: That score as a share of the absolute scores of all sources.
        stated: The largest share of its numbers, or of its content words if it has none, that a single source has;
            None where it was not measured.
        said_before: The same share that the response before the unit has.
    """

    tokens: int
    log_probability: float
    without_sources: float
    score: float | None = None
    share: float | None = None
    stated: float | None = None
    said_before: float | None = None


@dataclass(frozen=True)
class Variant:
    """Another text in the place of a unit, with its log-probability with all sources and, if measured, without any."""

    text: str
    log_probability: float
    without_sources: float | None = None


@dataclass(frozen=True)
class VerdictError:
    """How often a verdict was wrong on held-out data: the rate, its 95 % interval, and the number of units."""

    rate: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Citation:
    """A citation in the response.

    Attributes:
        marker: Its text, such as "[1]".
        source: The number of the cited source in `Support.sources`; None if no source has that name.
        status: Whether the source was used, would support the unit though it was not used, or does not support it.
    """

    marker: str
    source: int | None
    status: CitationStatus


@dataclass(frozen=True)
class UnitSupport:
    """The verdict on one unit of a response, usually a sentence. Figures are in nats; None where not measured.

    Attributes:
        start: Its first character in the response.
        end: The end of its range, exclusive.
        text: Its characters.
        tokens: The number of its tokens.
        verdict: The verdict.
        reason: The reason, in a sentence.
        log_probability: With all sources.
        without_sources: Without any source.
        lowest: The log-probability of its least likely token, with all sources.
        largest_gain: How much likelier the sources make one of its tokens, at most.
        without_earlier: With all sources, without the response before it.
        own_answer: What the model would have written instead.
        own_log_probability: The log-probability of that.
        own_tokens: The number of its tokens.
        rival: The unit with the value of the model's own answer.
        denial: The opposite of the unit.
        value: The figures of its value.
        judgement: The model's log-odds of yes against no to the question whether the unit follows from its prompt.
        judgement_without: The same without the sources.
        answers: Log-odds and gains by further questions to the model, by name (`whyformer.api.further_questions`).
        score: The largest signed white-box score of a source.
        sources: The figures of the sources that were measured.
        carrying: The smallest set of sources, by number, without which the unit loses half of what all of them give.
        carrying_necessity: How much the log-probability falls without that set.
        carrying_judgement: How much the judgement falls without it, for a unit that only its judgement supports.
        probabilities: The calibrated probability of each verdict; empty if the model is not calibrated.
        error: How often this verdict was wrong on held-out data; None if not calibrated.
        citations: The citations of the unit.
        uncited: Sources that were used and are not cited; empty for a response without citations.
    """

    start: int
    end: int
    text: str
    tokens: int
    verdict: Verdict
    reason: str
    log_probability: float
    without_sources: float
    lowest: float
    largest_gain: float
    without_earlier: float | None = None
    own_answer: str | None = None
    own_log_probability: float | None = None
    judgement: float | None = None
    judgement_without: float | None = None
    score: float | None = None
    sources: tuple[SourceFigures, ...] = ()
    carrying: tuple[int, ...] = ()
    carrying_necessity: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    error: VerdictError | None = None
    citations: tuple[Citation, ...] = ()
    uncited: tuple[int, ...] = ()
    carrying_judgement: float | None = None
    own_tokens: int | None = None
    rival: Variant | None = None
    denial: Variant | None = None
    value: ValueFigures | None = None
    answers: Mapping[str, float] = field(default_factory=dict)

    @property
    def necessity(self) -> float:
        """How much the log-probability falls without any source."""
        return self.log_probability - self.without_sources

    @property
    def per_token(self) -> float:
        """The log-probability per token."""
        return self.log_probability / self.tokens

    @property
    def log_odds(self) -> float | None:
        """The log-odds of the unit against its rival, which has the same form; 0 if they are the same."""
        return None if self.rival is None else self.log_probability - self.rival.log_probability

    @property
    def own_per_token(self) -> float | None:
        """The log-probability per token of what the model would have written; None if it would have written nothing."""
        return self.own_log_probability / self.own_tokens if self.own_log_probability and self.own_tokens else None

    @property
    def preferred(self) -> tuple[str, float] | None:
        """The answer that the model would rather have given, and the log-odds of the unit against it at equal length.

        That is the rival, or the model's own answer where there is no rival that is about as likely.
        """
        own = self.own_per_token
        is_short = 2 * (self.own_tokens or self.tokens) <= self.tokens
        least = (own or 0.0) - (LEAST_LIKELY_OF_SHORT if is_short else LEAST_LIKELY)
        if self.rival is not None and (own is None or self.rival.log_probability / self.tokens > least):
            return self.rival.text, self.log_odds or 0.0
        return None if own is None else (self.own_answer or "", self.tokens * (self.per_token - own))

    @property
    def error_text(self) -> str:
        """The error rate of the verdict: `wrong in 4 % [2, 7] of 150`, or `not calibrated`."""
        if self.error is None:
            return NOT_CALIBRATED
        low, high = round(100 * self.error.low), round(100 * self.error.high)
        return f"wrong in {100 * self.error.rate:.0f} % [{low}, {high}] of {self.error.count}"


@dataclass(frozen=True)
class Support:
    """The verdicts on a response. Returned by `Response.support`; `Response.verdicts` if it was explained with them.

    Attributes:
        units: The verdict on each row of the response.
        sources: The sources that were asked about: documents, then sentences of those that matter.
        forwards: The number of forward passes of one sequence that it took, not counting that of the white-box scores.
        full_forwards: The number that the full computation takes: without each source, and with each alone.
        calibration: What the verdicts were calibrated on, or "not calibrated".
        notes: Caveats for the reader, in sentences.

    Example:
        >>> from whyformer.facts import support_case
        >>> case = support_case(2, "made_up", register="plain", sentences=6)
        >>> response = whyformer.explain_response(case.prompt, f" {case.answer}", units="sentence")
        >>> support = response.support()
        >>> len(support.units), support.is_supported
        (1, False)
    """

    units: tuple[UnitSupport, ...]
    sources: tuple[Source, ...]
    forwards: int
    full_forwards: int
    calibration: str = NOT_CALIBRATED
    notes: tuple[str, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Whether no unit is without support or contradicted."""
        return not any(unit.verdict in FAULTS for unit in self.units)

    @property
    def has_support(self) -> bool:
        """Whether a source supports at least one unit."""
        return any(unit.verdict == "from sources" for unit in self.units)

    @property
    def counts(self) -> dict[Verdict, int]:
        """The number of units of each verdict."""
        return {verdict: sum(unit.verdict == verdict for unit in self.units) for verdict in VERDICTS}
