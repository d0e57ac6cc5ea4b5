"""Learn the weights of attention heads of a model: those by which attention predicts what removing sources does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from whyformer.api.calibration_data import case_call
from whyformer.api.exchange_scores import row_predictions
from whyformer.api.focus import places_but_the_question
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import Reply, reply_of
from whyformer.api.row_scores import read_at
from whyformer.errors import UnsupportedModel, WhyformerError, check_count
from whyformer.facts.statements import support_case
from whyformer.files import whole_file
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import Source, sources_of
from whyformer.inputs.support_logs import LoggedAnswer
from whyformer.inputs.teacher_forcing import ResponseRow, first_logit, row_inputs, row_weights
from whyformer.methods.learned_attention import BY_HEAD, head_rows
from whyformer.models.head_weights import HeadWeights, tensor_digest
from whyformer.models.loading import LoadedModel
from whyformer.progress import track
from whyformer.targets.span_scores import log_probability
from whyformer.tracing import build

FIRST_SEED = 100_000  # of generated examples: far from those that methods are measured on
ANSWER_TOKENS = 32  # of an answer that the model writes
LEAST_SOURCES = 3
FIT_STEPS, FIT_RATE = 300, 0.05  # of Adam
HELD_OUT_EVERY = 5  # one example in so many
KEPT_EVERY = 10  # examples between two saves
LEAST_SPREAD = 1e-6  # of the outcomes of an example
AT_ONCE = 8  # masks
HEAD_FEATURES, OUTCOMES = "features", "outcomes"


@dataclass(frozen=True)
class LearningRun:
    """The settings of a run.

    Attributes:
        model: The model.
        data: The data, in words.
        masks: Random masks of the sources of each example.
        seed: Their seed.
        part: The file of unfinished work, so that a stopped run goes on.
    """

    model: LoadedModel
    data: str
    masks: int
    seed: int
    part: Path

    @property
    def facts(self) -> dict[str, str]:
        """The settings that unfinished work must share."""
        facts = {"digest": tensor_digest(self.model.model), "data": self.data, "masks": self.masks, "seed": self.seed}
        return {name: str(value) for name, value in facts.items()}


def generated_answers(loaded_model: LoadedModel, examples: int) -> Iterator[Reply]:
    """The model's own answers to generated questions."""
    register = "plain" if loaded_model.name == "mini-llm" else "prose"
    scorer = LoadedScorer(loaded_model)
    for seed in range(FIRST_SEED, FIRST_SEED + examples):
        call = case_call(loaded_model.tokenizer, support_case(seed, "true", register=register, sentences=9))  # type: ignore[arg-type]
        opening = encode_prompt(loaded_model, call.prompt, call.documents)
        written = scorer.write(scorer.variant(opening.prompt), ANSWER_TOKENS)
        yield reply_of(loaded_model, opening, written if written.strip() else call.answer)


def logged_answers(loaded_model: LoadedModel, answers: Sequence[LoggedAnswer]) -> Iterator[Reply]:
    """The answers of a log."""
    for one in answers:
        documents = None if one.documents is None else list(one.documents)
        yield reply_of(loaded_model, encode_prompt(loaded_model, one.prompt, documents), one.answer)


def learn_heads(run: LearningRun, replies: Iterator[Reply], examples: int, *, progress: bool = False) -> HeadWeights:
    """Learn θ: removal of random sources on one side, attention to those that are kept on the other."""
    check_count("examples", examples)
    check_count("masks", run.masks)
    if run.model.task.has_decoder or not run.model.task.writes:
        raise UnsupportedModel(f"{run.model.name} is not a decoder: learn needs prompt and response in one stream.")
    features, outcomes = _unfinished(run)
    for number in track(range(examples), f"learning heads of {run.model.name}", progress=progress):
        reply = next(replies)
        if number >= len(features):
            each = measured_example(run, reply, number)
            features.append(each[0])
            outcomes.append(each[1])
            if (number + 1) % KEPT_EVERY == 0:
                _keep(run, features, outcomes)
    usable = [number for number, one in enumerate(outcomes) if float(one.std()) > LEAST_SPREAD]
    if len(usable) < 2 * HELD_OUT_EVERY:
        raise WhyformerError(f"Only {len(usable)} of {examples} examples have sources that matter: too few to learn.")
    stacked = torch.stack([features[one] for one in usable]), torch.stack([outcomes[one] for one in usable])
    theta, correlation, uniform = fitted_heads(*stacked)
    facts = {"model": run.model.name, "data": run.data, "examples": len(usable), "masks": run.masks, "seed": run.seed}
    facts |= {"correlation": round(correlation, 4), "correlation_of_mean_attention": round(uniform, 4)}
    run.part.unlink(missing_ok=True)
    return HeadWeights(theta, tensor_digest(run.model.model), facts)


def measured_example(run: LearningRun, reply: Reply, number: int) -> tuple[Tensor, Tensor]:
    """The attention of each head to the kept sources [mask, head], and the log-odds of the response [mask]."""
    all_sources = sources_of(reply.prompt)
    kept = set(places_but_the_question(reply.prompt, all_sources))
    sources = [source for source in all_sources if (source.start, source.end) in kept]
    rng, is_enough = np.random.default_rng((run.seed, number)), len(sources) >= LEAST_SOURCES
    sources = sources if is_enough else list(all_sources)
    masks = (
        torch.from_numpy(rng.random((run.masks, len(sources))) < 0.5) & is_enough
    )  # else none is kept, and none learned
    features = masks.float() @ source_attention(run.model, reply, sources)
    return features, masked_log_odds(run.model, reply, sources, masks).float()


def source_attention(loaded_model: LoadedModel, reply: Reply, sources: Sequence[Source]) -> Tensor:
    """The mean attention of the response's tokens to each source, by head: [source, head]."""
    row = ResponseRow(reply.exchange, tuple(range(len(reply.exchange.response))))
    inputs = row_inputs(loaded_model, [row])
    score = log_probability(row_predictions([row], first_logit(inputs)), 1)
    weights = row_weights([row], row.length)
    trace = read_at(build.trace(loaded_model.model, inputs, score, reads=BY_HEAD, readout=weights), [row])
    heads = torch.cat([values[0] for _, values in head_rows(trace)]).float().cpu()
    return torch.stack([heads[:, list(source.tokens)].sum(dim=1) for source in sources])


@torch.inference_mode()
def masked_log_odds(loaded_model: LoadedModel, reply: Reply, sources: Sequence[Source], masks: Tensor) -> Tensor:
    """The mean of log p / (1 − p) over the response's tokens, with the other sources hidden from attention."""
    row = ResponseRow(reply.exchange, tuple(range(len(reply.exchange.response))))
    inputs = {name: value for name, value in row_inputs(loaded_model, [row]).items() if name != "logits_to_keep"}
    places = torch.tensor(row.positions, device=inputs["input_ids"].device)
    response = torch.tensor(reply.exchange.response, device=places.device)
    means = []
    for some in masks.split(AT_ONCE):
        seen = inputs["attention_mask"].repeat(len(some), 1)
        for mask, line in zip(some, seen, strict=True):
            for source, is_kept in zip(sources, mask.tolist(), strict=True):
                line[list(source.tokens)] = line[list(source.tokens)] * int(is_kept)
        output = loaded_model.model(input_ids=inputs["input_ids"].expand(len(some), -1), attention_mask=seen)
        logits = output.logits[:, places].double()
        index = response.expand(len(some), -1)[..., None]
        others = logits.scatter(-1, index, -torch.inf).logsumexp(dim=-1)
        means.append((logits.gather(-1, index)[..., 0] - others).mean(dim=-1).cpu())
    return torch.cat(means)


def fitted_heads(features: Tensor, outcomes: Tensor) -> tuple[Tensor, float, float]:
    """θ ≥ 0 of the largest mean correlation per example; and the correlation, held out, of it and of equal weights."""
    held_out = torch.arange(len(features)) % HELD_OUT_EVERY == 0
    theta = torch.full(features.shape[-1:], 1.0, requires_grad=True)
    optimiser = torch.optim.Adam([theta], lr=FIT_RATE)
    with torch.no_grad():
        uniform = best = float(mean_correlation(features[held_out], outcomes[held_out], theta))
    chosen = theta.detach().clone()
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(FIT_STEPS):
            optimiser.zero_grad()
            (-mean_correlation(features[~held_out], outcomes[~held_out], theta)).backward()
            optimiser.step()
            with torch.no_grad():
                theta.clamp_(min=0)
                now = float(mean_correlation(features[held_out], outcomes[held_out], theta))
            if now > best:
                best, chosen = now, theta.detach().clone()
    return chosen / chosen.sum(), best, uniform


def mean_correlation(features: Tensor, outcomes: Tensor, theta: Tensor) -> Tensor:
    """The mean over examples of Pearson's correlation between Σ_kept θ · attention and the outcome."""
    predicted = features @ theta
    predicted, real = predicted - predicted.mean(dim=1, keepdim=True), outcomes - outcomes.mean(dim=1, keepdim=True)
    norms = (predicted.norm(dim=1) * real.norm(dim=1)).clamp(min=1e-12)
    correlations: Tensor = (predicted * real).sum(dim=1) / norms
    return correlations.mean()


def _keep(run: LearningRun, features: Sequence[Tensor], outcomes: Sequence[Tensor]) -> None:
    run.part.parent.mkdir(parents=True, exist_ok=True)
    tensors = {HEAD_FEATURES: torch.stack(list(features)), OUTCOMES: torch.stack(list(outcomes))}
    with whole_file(run.part) as unfinished:
        save_file(tensors, unfinished, metadata=run.facts)


def _unfinished(run: LearningRun) -> tuple[list[Tensor], list[Tensor]]:
    """The examples of a stopped run with the same settings."""
    if not run.part.is_file():
        return [], []
    with safe_open(run.part, framework="pt") as file:
        is_same = file.metadata() == run.facts
    tensors: dict[str, Any] = load_file(run.part) if is_same else {}
    return list(tensors.get(HEAD_FEATURES, ())), list(tensors.get(OUTCOMES, ()))
