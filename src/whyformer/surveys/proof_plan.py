"""Which samples each cue is removed from: the same ones as far as possible, so that passes are shared."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whyformer.surveys.cue_choice import ALL, CueQuestion, CueTotals, Decisions
from whyformer.surveys.cues import MASKS, POSITIONS, REGIONS, Cue, CueKind
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.sound_cues import SOUND_BANDS, SOUND_TIMES

REMOVAL_SAMPLES = 48  # that a cue is removed from
_FIXED: dict[CueKind, tuple[str, ...]] = {
    "position": POSITIONS,
    "region": REGIONS,
    "mask": MASKS,
    "time": SOUND_TIMES,
    "band": SOUND_BANDS,
}


@dataclass(frozen=True)
class ProofPlan:
    """The samples of each question, and its sums over all samples.

    Effects are on the answer of the model, but in the samples of `targets` on the labels that these name.
    """

    samples: Mapping[CueQuestion, tuple[int, ...]]
    totals: Mapping[CueQuestion, CueTotals]
    targets: Mapping[int, str] = field(default_factory=dict)

    @property
    def cues(self) -> dict[int, frozenset[Cue]]:
        """The cues to remove from each sample, by its number."""
        by_sample: defaultdict[int, set[Cue]] = defaultdict(set)
        for (cue, _), numbers in self.samples.items():
            for number in numbers:
                by_sample[number].add(cue)
        return {number: frozenset(by_sample[number]) for number in sorted(by_sample)}


def plan_proof(
    samples: Iterable[ScoredSample],
    chosen: Sequence[CueQuestion],
    given: Collection[Cue],
    is_kept: np.ndarray,
    *,
    seed: int = 0,
) -> ProofPlan:
    """Assign samples to the questions about chosen cues, and about those that are fixed or given by the user.

    A chosen cue is removed only from samples that are kept for proof; the others may be removed from all.
    """
    order = np.random.default_rng([seed, 1]).permutation(len(is_kept)).tolist()
    questions: defaultdict[Cue, set[Decisions]] = defaultdict(set)
    for cue, group in chosen:
        questions[cue].add(group)
    free = {*given, *(Cue(kind, name) for kind, names in _FIXED.items() for name in names)}
    wanted = frozenset({*questions, *free})
    totals: defaultdict[CueQuestion, CueTotals] = defaultdict(CueTotals)
    heaps: defaultdict[CueQuestion, list[tuple[int, int]]] = defaultdict(list)
    for sample in samples:
        for cue, part in sample.parts(wanted).items():
            if not part.any():
                continue
            groups = {group for group in questions.get(cue, ()) if sample in group}
            if cue in free:
                groups |= (
                    {Decisions(sample.answer)} if cue in given and not cue.is_fixed else {ALL, Decisions(sample.answer)}
                )
            for group in groups:
                totals[cue, group].add(sample, part)
                if cue in free or is_kept[sample.number]:
                    heap = heaps[cue, group]
                    heapq.heappush(heap, (-order[sample.number], sample.number))
                    if len(heap) > REMOVAL_SAMPLES:
                        heapq.heappop(heap)
    assigned = {question: tuple(sorted(number for _, number in heaps[question])) for question in totals}
    return ProofPlan(assigned, dict(totals))
