"""Effects of the parts of a conversation on a call, by removal: whole messages, then parts of those that matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whyformer.api.support_questions import CountedScorer
from whyformer.inputs.action_sources import ActionSource, labelled_ranges
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sentences import CharRange
from whyformer.removal.response_scorer import ScoringRequest
from whyformer.results.action import ActionTarget, ActionVerdict

TAU_ACTION = 2.0  # nats from which an effect counts
MOST_WITHIN = 16  # parts of a result that are removed one by one without white-box scores
WHOLE_CALL, THE_ACTION, THE_DECISION = 0, 1, 2  # indices of targets
LARGEST_LOG_PROBABILITY = -1e-6  # log-probabilities nearer to 0 are rounding of float32


@dataclass(frozen=True)
class RemovalLimits:
    """How many sources are removed one by one, those with the highest white-box scores.

    Attributes:
        whole: Messages and results.
        others: Other parts, such as schemas.
        within: Parts of a result, for each target.
        targets: The targets that choose parts, the whole call first; None for all.
    """

    whole: int = 12
    others: int = 3
    within: int = 4
    targets: int | None = None


LIMITS = RemovalLimits()
LONG_LIMITS = RemovalLimits(whole=3, others=0, within=3, targets=1)  # of a prompt that takes seconds to read


@dataclass(frozen=True)
class CallReply:
    """A call as the text of a reply: its tokens, and those of each target."""

    text: str
    tokens: tuple[Token, ...]
    targets: tuple[tuple[int, ...], ...]


@dataclass(eq=False)
class ActionRemoval:
    """Removes sources of a conversation, and asks how likely the targets of a call are then.

    Attributes:
        scorer: The model.
        prompt: The conversation before the call.
        replies: The call, and the one that it is contrasted with, if any: its log-probabilities are subtracted.
        sources: The sources, as a tree.
        scores: White-box scores [target, source] that choose what is removed; None to try more.
        notes: Sentences for the reader, added to.
        tau: The nats from which an effect counts for a verdict.
        limits: How much is removed.
    """

    scorer: CountedScorer
    prompt: Prompt
    replies: tuple[CallReply, ...]
    sources: tuple[ActionSource, ...]
    scores: np.ndarray | None
    notes: list[str] = field(default_factory=list)
    tau: float = TAU_ACTION
    limits: RemovalLimits = LIMITS

    def values(self, removals: Sequence[Iterable[CharRange]]) -> np.ndarray:
        """The log-probability of each target without each of these sets of ranges: an array [removal, target].

        That of the decision is the log-odds against beginning the reply in any other way.
        """
        variants = [self.scorer.scorer.variant(self.prompt, sorted(removed)) for removed in map(list, removals)]
        whole = self.scorer.scorer.variant(self.prompt)
        totals = []
        for reply in self.replies:
            requests = [ScoringRequest(one, reply.tokens, reply.text) for one in variants]
            each = self.scorer.log_probabilities(requests, whole)
            own_values = np.array([[one[list(own)].sum() for own in reply.targets] for one in each])
            own_values[:, THE_DECISION] = decision_odds(own_values[:, THE_DECISION])
            totals.append(own_values)
        values: np.ndarray = totals[0] if len(totals) == 1 else totals[0] - totals[1]
        return values

    def with_figures(self, targets: Sequence[ActionTarget]) -> tuple[ActionTarget, ...]:
        """The targets with their log-probabilities with and without the request and the untrusted sources."""
        request, untrusted = (labelled_ranges(self.sources, label) for label in ("request", "untrusted"))
        rows = self.values([(), request, untrusted, [*request, *untrusted]])
        measured = [
            replace(
                target,
                log_probability=float(own[0]),
                without_request=float(own[1]),
                without_untrusted=float(own[2]),
                without_both=float(own[3]),
            )
            for target, own in zip(targets, rows.T, strict=True)
        ]
        measured = [replace(one, verdict=part_verdict(one, self.tau)) for one in measured]
        measured[WHOLE_CALL] = replace(
            measured[WHOLE_CALL], verdict=call_verdict(measured[WHOLE_CALL], measured[THE_ACTION], self.tau)
        )
        return tuple(measured)

    def effects(self) -> np.ndarray:
        """How much the log-probability of each target falls without each source [target, source]; NaN if not tried."""
        effects = np.full((len(self.replies[0].targets), len(self.sources)), np.nan, dtype=np.float32)
        chosen = self._whole()
        while chosen:
            chosen = self._affordable(chosen)
            values = self.values([(), *([self.place(number)] for number in chosen)])
            for number, value in zip(chosen, values[1:], strict=True):
                effects[:, number] = values[0] - value
            chosen = self._within([number for number in chosen if self._matters(effects[:, number])])
        return effects

    def place(self, number: int) -> CharRange:
        """The range of a source."""
        return self.sources[number].start, self.sources[number].end

    def ranked(self, numbers: Sequence[int], most: int, target: int = WHOLE_CALL) -> list[int]:
        """The sources with the highest scores; without scores the last ones, which are the nearest to the call."""
        if self.scores is None:
            return list(numbers)[-most:] if most else []
        scores = self.scores
        return sorted(numbers, key=lambda number: -scores[target, number])[:most]

    def instead(self, driver: Sequence[int], tokens: int) -> str | None:
        """The reply that the model would write without these sources; None without sources, or if it cannot write."""
        if not driver or not self.scorer.has_spare(1):
            return None
        removed = sorted(self.place(number) for number in driver)
        return self.scorer.write_all(self.scorer.scorer.variant(self.prompt, removed), tokens)

    def _whole(self) -> list[int]:
        """Messages and results, and the schemas and calls that the scores rank first."""
        numbers = [number for number, one in enumerate(self.sources) if one.parent is None and one.end > one.start]
        spoken = [number for number in numbers if self.sources[number].kind in ("system", "user", "tool result")]
        others = [number for number in numbers if number not in spoken]
        most = self.limits.whole
        if len(spoken) > most:
            self.notes.append(f"Of {len(spoken)} messages the {most} with the highest scores were removed.")
        return sorted(self.ranked(spoken, most) + self.ranked(others, self.limits.others))

    def _within(self, numbers: Sequence[int]) -> list[int]:
        """The parts of these sources to remove one by one."""
        chosen = set[int]()
        for number in numbers:
            parts = [one for one, source in enumerate(self.sources) if source.parent == number]
            if self.scores is None:
                chosen |= set(self.ranked(parts, MOST_WITHIN))
                continue
            for row in range(len(self.scores))[: self.limits.targets]:
                chosen |= set(self.ranked(parts, self.limits.within, row))
        return sorted(chosen)

    def _affordable(self, numbers: Sequence[int]) -> list[int]:
        """As many of these sources as the budget allows."""
        count = len(numbers)
        while count and not self.scorer.has_spare(count * len(self.replies)):
            count -= 1
        if count < len(numbers):
            self.notes.append(f"The budget of {self.scorer.budget} forward passes left some sources unmeasured.")
        return list(numbers[:count])

    def _matters(self, effects: np.ndarray) -> bool:
        return bool((np.abs(effects) >= TAU_ACTION / 2).any())


def decision_odds(log_probabilities: np.ndarray) -> np.ndarray:
    """log p − log(1 − p)."""
    below = np.minimum(log_probabilities, LARGEST_LOG_PROBABILITY)
    odds: np.ndarray = below - np.log(-np.expm1(below))
    return odds


def call_verdict(call: ActionTarget, action: ActionTarget, tau: float = TAU_ACTION) -> ActionVerdict:
    """Whose doing a call is: the user's if it needs the request, that of the results if it needs these alone.

    What the user asks for may need a value of a result, too; it is mixed if the choice of the tool does.
    """
    if call.request_effect >= tau:
        return "mixed" if action.untrusted_effect >= tau else "follows the user"
    return "driven by a tool result" if call.untrusted_effect >= tau else "cannot tell"


def part_verdict(target: ActionTarget, tau: float = TAU_ACTION) -> ActionVerdict:
    """Where a part of a call comes from: the request or the untrusted sources, if either adds enough to it."""
    if target.dominance >= tau and target.untrusted_effect >= tau:
        return "driven by a tool result"
    if target.dominance <= -tau and target.request_effect >= tau:
        return "follows the user"
    if min(target.request_effect, target.untrusted_effect) >= tau:
        return "mixed"
    return "cannot tell"
