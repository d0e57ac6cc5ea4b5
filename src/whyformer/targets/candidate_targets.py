"""Targets that are one of several texts, each read separately: choices after a prompt, or zero-shot labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.inputs.candidates import Candidates
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.read import two_of
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import entailment_of, labels_of
from whyformer.targets.head_target import HeadTarget, Term, output_of, output_tensor, sum_of
from whyformer.targets.scores import Contrast, Detection, PlacedLabel, text_index

CandidateKind = Literal["choice", "candidate"]


def is_zero_shot(example: Any) -> bool:
    """Whether an example is a text with candidate labels."""
    return isinstance(example, tuple) and len(example) == 2 and isinstance(example[1], (list, Candidates))


def choice_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for one of the choices; "predicted" is the most likely one."""
    prompt, choices = two_of(example, "a prompt and a list of choices: ('The sky is', ['blue', 'loud'])")
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise WhyformerError(f"{loaded_model.name} chooses among texts: give (prompt, [choices]), not {example!r:.60}.")
    encoded = _encode(loaded_model, number, [(prompt, choice) for choice in choices], truncate=truncate)
    logits = _logits(loaded_model, encoded)[:, 0]
    chosen = _chosen(target, choices, logits, "choice")
    share = float(logits.softmax(dim=0)[chosen])
    return [HeadTarget(encoded[chosen], sum_of([Term("logits", (0,))]), str(choices[chosen]), share)]


def candidate_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for one of a text's candidate labels, as in transformers' zero-shot pipeline; "predicted" is the best.

    The score is the logit of entailment. The probability is the softmax over all candidates, or, for a single one, over
    entailment and contradiction.
    """
    text, labels = two_of(example, "a text and candidate labels: ('The match was lost.', ['sport', 'politics'])")
    candidates = labels if isinstance(labels, Candidates) else Candidates(tuple(labels))
    entailment, contradiction = _inference_labels(loaded_model)
    pairs = [(text, hypothesis) for hypothesis in candidates.hypotheses]
    encoded = _encode(loaded_model, number, pairs, truncate=truncate)
    logits = _logits(loaded_model, encoded)
    chosen = _chosen(target, candidates.labels, logits[:, entailment], "candidate")
    shares = logits[:, entailment] if len(pairs) > 1 else logits[0, [entailment, contradiction]]
    share = float(shares.softmax(dim=0)[chosen])
    return [HeadTarget(encoded[chosen], sum_of([Term("logits", (entailment,))]), candidates.labels[chosen], share)]


def all_candidates(example: Any) -> list[int]:
    """Indices of all choices, candidates or texts of an example."""
    choices = example[1].labels if isinstance(example[1], Candidates) else example[1]
    return list(range(len(choices)))


def _inference_labels(loaded_model: LoadedModel) -> tuple[int, int]:
    """Indices of entailment and contradiction, found as in transformers' pipeline."""
    entailment = entailment_of(loaded_model.model)
    if entailment is None:
        labels = labels_of(loaded_model.model)
        raise WhyformerError(
            f"{loaded_model.name} has no label 'entailment', so it cannot choose among candidates: use a model of "
            f"natural language inference, or give two texts as (text, text). Its labels: {', '.join(labels.values())}."
        )
    return entailment, -1 if entailment == 0 else 0


def _encode(
    loaded_model: LoadedModel, number: int, pairs: Sequence[tuple[Any, Any]], *, truncate: bool
) -> list[EncodedExample]:
    return [EncodedExample(number, {"text": whole_text(pair, loaded_model, truncate=truncate)}) for pair in pairs]


def _logits(loaded_model: LoadedModel, encoded: Sequence[EncodedExample]) -> Tensor:
    """The logits [text, label], each text run separately."""
    return torch.stack([output_tensor(output_of(loaded_model, one), "logits", loaded_model) for one in encoded])


def _chosen(target: Any, texts: Sequence[str], logits: Tensor, kind: CandidateKind) -> int:
    if isinstance(target, (Contrast, Detection, PlacedLabel)):
        raise WhyformerError(
            f"A target is a {kind} or its index, or 'predicted', not {target!r:.40}: each {kind} is scored separately."
        )
    return int(logits.argmax()) if target == "predicted" else text_index(target, texts, kind)
