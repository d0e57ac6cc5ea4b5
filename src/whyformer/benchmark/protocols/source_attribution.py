"""Compare the sources of responses with the truth, and with the model's output without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.api.explain_response import explain_responses
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.source_methods import response_ablation
from whyformer.axes import SourceValues, SubsetScores
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.samples import SampleSourceTruth
from whyformer.benchmark.shard import Shard
from whyformer.errors import UnsupportedModel
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import Source, sources_of
from whyformer.inputs.spans import spans_of
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.methods.registry import source_methods
from whyformer.methods.source_ablation import random_subsets
from whyformer.metrics.source_measures import (
    HELD_OUT,
    TOP,
    lexical_overlap,
    rank_agreement,
    recency,
    source_average_precision,
    source_recall,
    without_the_highest,
)
from whyformer.models.loading import LoadedModel
from whyformer.removal.units import Ablation

THIRDS = ("first", "middle", "last")
MethodSourceScores = dict[str, list[SourceValues]]  # of each method, for each sample


@dataclass(frozen=True)
class SourceCase:
    """A sample with its prompt, reply and sources."""

    truth: SampleSourceTruth
    prompt: Any
    reply: Reply
    sources: tuple[Source, ...]
    ablation: Ablation

    @property
    def true_sources(self) -> list[np.ndarray]:
        """Which sources are true: for each set of causes that suffices, and for all of them together."""
        numbers, causes = np.arange(len(self.sources)), self.truth.causes
        every = tuple({place for cause in causes for place in cause})
        return [np.isin(numbers, cause) for cause in (*causes, every) if cause]

    @property
    def third(self) -> str | None:
        """The third of the document that contains the causes on average; None without causes."""
        places = [place for cause in self.truth.causes for place in cause]
        return THIRDS[min(2, int(3 * (np.mean(places) + 0.5) / len(self.sources)))] if places else None


@protocol(
    "sources",
    {
        **{f"recall of true sources at {k}": Figure(f"recall@{k}") for k in TOP},
        "AUPRC": Figure("AUPRC"),
        **{f"AUPRC, {hops} hop{'s' * (hops > 1)}": Figure(f"AUPRC, hops {hops}") for hops in (1, 2, 3)},
        **{f"AUPRC, causes in the {third} third": Figure(f"AUPRC, {third} third") for third in THIRDS},
        **{f"drop of log p without the top {k}": Figure(f"drop@{k}", is_share=False) for k in TOP},
        "LDS": Figure("LDS", is_share=False),
        "forwards": Figure("forwards", better="lower", is_share=False),
    },
)
def sources(
    shard: Shard, *, subsets: int = 64, held_out: int = 32, focus: str = "none", least_loss: float | None = None
) -> Columns:
    """Sources of a response, compared with the truth and with the model's output without them.

    Besides the methods of the suite, this includes removal methods with `subsets` runs, and two controls: later
    sentences first, and words shared with question and response. LDS is over `held_out` other subsets. `focus` is that
    of `explain_response`. With `least_loss`, a sample counts only if the response loses as many nats without its true
    sources.
    """
    samples = shard.batch.samples
    truths = [sample.response for sample in samples if sample.response is not None]
    require(len(truths) == len(samples), shard, "sources", "questions about documents with known sources")
    require(shard.loaded_model.task.writes, shard, "sources", "a model that writes")
    cases = [_case(shard.loaded_model, truth, shard.batch_size.size) for truth in truths]
    scores, forwards = _scores(shard, cases, subsets, focus)
    masks = [random_subsets(len(case.sources), held_out, seed=shard.seed + HELD_OUT) for case in cases]
    real = [case.ablation.scores_of(each) for case, each in zip(cases, masks, strict=True)]
    drops = [_drops(case, {name: scores[name][row] for name in scores}) for row, case in enumerate(cases)]
    columns: Columns = {}
    for name, by_sample in scores.items():
        columns |= {(name, measure): values for measure, values in _against_truth(cases, by_sample).items()}
        for place, k in enumerate(TOP):
            columns[name, f"drop@{k}"] = torch.tensor([drop[name][place] for drop in drops])
        agreements = zip(masks, by_sample, real, strict=True)
        columns[name, "LDS"] = torch.tensor([_agreement(*each) for each in agreements])
        columns[name, "forwards"] = torch.full((len(cases),), forwards[name])
    if least_loss is None:
        return columns
    is_kept = torch.tensor([_loss(case) >= least_loss for case in cases])
    return {key: torch.as_tensor(values).where(is_kept, float("nan")) for key, values in columns.items()}


def _case(loaded_model: LoadedModel, truth: SampleSourceTruth, batch_size: int) -> SourceCase:
    """Build the case of a question: a message if the model has a chat template, otherwise a text to continue."""
    is_chat = bool(getattr(loaded_model.tokenizer, "chat_template", None))
    prompt = [{"role": "user", "content": truth.prompt}] if is_chat else truth.prompt
    encoded = encode_prompt(loaded_model, prompt)
    reply = reply_of(loaded_model, encoded, truth.response if is_chat else f" {truth.response}")
    parts = sources_of(encoded.prompt, truth.sources)
    rows = [ResponseRow(reply.exchange, span.tokens) for span in spans_of(reply.text, reply.tokens, "response")]
    ablation = response_ablation(LoadedScorer(loaded_model, batch_size), reply, rows, parts)
    return SourceCase(truth, prompt, reply, parts, ablation)


def _scores(
    shard: Shard, cases: Sequence[SourceCase], subsets: int, focus: str
) -> tuple[MethodSourceScores, dict[str, float]]:
    """The scores of every sample's sources by every method, and the cost of each in forward passes of one sequence."""
    scores: MethodSourceScores = {}
    forwards: dict[str, float] = {}
    for name, choice in shard.methods.items():
        try:
            with _counted(shard) as count:
                scores[name] = _by_method(shard, cases, choice.name, {**choice.options, "focus": focus})
        except UnsupportedModel as reason:
            shard.cache.left_out[name] = str(reason)
            continue
        forwards[name] = count[0] / len(cases)
    for name, method in source_methods().items():
        if name in shard.known:
            continue
        if not method.reads.subsets:  # learned once per model, where it was
            with suppress(UnsupportedModel), _counted(shard) as count:
                scores[name] = _by_method(shard, cases, name, {"focus": focus})
            forwards |= {name: count[0] / len(cases)} if name in scores else {}
            continue
        options = {"subsets": subsets} if "subsets" in method.options else {}
        options |= {"seed": shard.seed} if "seed" in method.options else {}
        with _counted(shard) as count:
            scores[name] = [method.of_sources(case.ablation, **options)[0] for case in cases]
        forwards[name] = count[0] / len(cases)
    controls = {
        "recency": [recency(len(case.sources)) for case in cases],
        "lexical_overlap": [
            lexical_overlap([part.text for part in case.sources], f"{_question(case)} {case.truth.response}")
            for case in cases
        ],
    }
    scores |= {name: values for name, values in controls.items() if name not in shard.known}
    return scores, forwards | dict.fromkeys(controls, 0.0)


def _by_method(shard: Shard, cases: Sequence[SourceCase], name: str, options: Mapping[str, Any]) -> list[SourceValues]:
    def explain(part: slice) -> list[SourceValues]:
        some = cases[part]
        responses = explain_responses(
            [case.prompt for case in some],
            [case.reply.text for case in some],
            shard.loaded_model,
            name,
            units="response",
            sources="token",
            **options,
        )
        regrouped = (one.by(case.truth.sources) for one, case in zip(responses, some, strict=True))
        return [one.scores[0].astype(np.float64) for one in regrouped]

    return [values for part in shard.batch_size.map_slices(len(cases), explain) for values in part]


@contextmanager
def _counted(shard: Shard) -> Iterator[list[int]]:
    """Count the sequences that the model runs on within the context."""
    count = [0]

    def add(module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        first = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        count[0] += 0 if first is None else len(first)

    hook = shard.loaded_model.model.register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield count
    finally:
        hook.remove()


def _question(case: SourceCase) -> str:
    return case.truth.prompt[case.truth.sources[-1][1] :]


def _against_truth(cases: Sequence[SourceCase], scores: Sequence[SourceValues]) -> dict[str, Tensor]:
    """Recall and AUPRC of each sample; if several sets of causes suffice, the best match with one or all of them."""
    pairs = [(values, case.true_sources) for case, values in zip(cases, scores, strict=True)]
    measures = {f"recall@{k}": [_best([source_recall(v, t, k) for t in truth]) for v, truth in pairs] for k in TOP}
    areas = np.array([_best([source_average_precision(v, t) for t in truth]) for v, truth in pairs])
    columns = {name: torch.tensor(values) for name, values in measures.items()} | {"AUPRC": torch.from_numpy(areas)}
    for hops in (1, 2, 3):
        is_it = np.array([case.truth.hops == hops for case in cases])
        columns[f"AUPRC, hops {hops}"] = torch.from_numpy(np.where(is_it, areas, np.nan))
    for third in THIRDS:
        is_it = np.array([case.third == third for case in cases])
        columns[f"AUPRC, {third} third"] = torch.from_numpy(np.where(is_it, areas, np.nan))
    return columns


def _best(values: Sequence[float]) -> float:
    return max(values, default=float("nan"))


def _drops(case: SourceCase, scores: Mapping[str, SourceValues]) -> dict[str, np.ndarray]:
    """The drop of the response's log-probability without each method's top sources, all in one batch."""
    masks = [without_the_highest(values, TOP) for values in scores.values()]
    whole = np.ones((1, len(case.sources)), dtype=bool)
    before, *after = case.ablation.scores_of(np.concatenate([whole, *masks]))[:, 0]
    drops = before - np.reshape(after, (len(scores), len(TOP)))
    return dict(zip(scores, drops, strict=True))


def _loss(case: SourceCase) -> float:
    """The log-probability that the response loses without all its true sources."""
    masks = np.stack([np.ones(len(case.sources), dtype=bool), ~np.any(case.true_sources, axis=0)])
    whole, without = case.ablation.scores_of(masks)[:, 0]
    return float(whole - without)


def _agreement(masks: np.ndarray, scores: SourceValues, real: SubsetScores) -> float:
    return float(rank_agreement((masks @ scores)[:, None], real)[0])
