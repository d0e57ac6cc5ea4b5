"""Check a model before trusting its explanations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.api.attribute import DEFAULT_CHOICE, attribute, default_for
from whyformer.api.checkup import Checkup
from whyformer.api.memory_estimate import OutOfMemory, available_bytes, check_tokens, estimate_memory
from whyformer.axes import Inputs, Logits
from whyformer.errors import UnsupportedModel, WhyformerError, reason_of
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.modality import known_modalities
from whyformer.methods.registry import method_named, methods_of, trace_methods
from whyformer.models.answering import run_model
from whyformer.models.families import FAMILIES, family_of
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.models.structure import config_of, labels_of, layers_of, main_input, patch_grid, prefix_length
from whyformer.targets.head_target import score_of
from whyformer.targets.heads import head_targets, needs_example
from whyformer.targets.scores import Pixel, Target, all_logits
from whyformer.tracing.build import trace
from whyformer.tracing.checks import NoMaps
from whyformer.tracing.formulas import scored_stream
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace, real_tokens
from whyformer.watching.watcher import Watcher

STORY_QUESTION = "How is the end of the story?"
SENTENCE = "The story starts slowly, but its ending is a great surprise."
TOLERANCE = 1e-3  # between recorded and plain logits, relative to the largest
INFINITE = "gives scores that are not finite."
COLLAPSE = 0.5  # share of the score on one token that hides all others


def doctor(model: str | Path | nn.Module | LoadedModel, processor: Any = None, *, tokens: int | None = None) -> Checkup:
    """Check a model: whether it is recorded correctly, how its tokens are laid out, and which methods apply.

    Args:
        model: The name of a bundled model, a folder, a Hugging Face id, a torch module, or a LoadedModel.
        processor: The tokenizer or image processor, if the module's folder is unknown.
        tokens: For a model that reads texts: also estimate the memory each method takes for a text of this many tokens.

    Returns:
        A Checkup: print it, or read its fields; `is_healthy` is False if anything is wrong.

    Raises:
        WhyformerError: If the model cannot be loaded, has no processor, or reads pictures without attention.

    Example:
        >>> import whyformer
        >>> whyformer.doctor("mini-vit").is_healthy
        True
    """
    return checkup(resolve_model(model, processor), tokens=tokens)


def checkup(loaded_model: LoadedModel, *, tokens: int | None = None, names: Iterable[str] | None = None) -> Checkup:
    """Run the model on a neutral example, plain and recorded, and the named methods, by default all."""
    model = loaded_model.model
    one, target = _neutral(loaded_model)
    if tokens is not None:
        check_tokens(model, tokens)
    inputs = model_inputs(loaded_model, [one])
    probe, without_maps = _probe(model, inputs, target)
    with torch.no_grad():
        plain = _answer(run_model(model, **inputs))
    watcher = Watcher(1)
    recorded = _answer(watcher.run(model, **inputs))
    content = _content(one, probe)
    scores = {} if without_maps else attribute(model, inputs, target, method="raw_attention")
    nothing = torch.zeros_like(probe.masks[scored_stream(probe)], dtype=torch.float32)  # a pooling stream has no keys
    raw = scores.get(scored_stream(probe), nothing)[0].abs()
    known = trace_methods() if probe.question.bridge is None else trace_methods() | methods_of("image prompt")
    methods, completeness, failures = _methods(model, inputs, target, known if names is None else names)
    difference, largest = float((recorded - plain).abs().max()), float(plain.abs().max())
    first_content = _share(raw[list(content)])
    return Checkup(
        model=loaded_model.name,
        architecture=type(model).__name__,
        family=_family_name(model, inputs),
        answers=loaded_model.task.description,
        targets=loaded_model.task.targets,
        labels=tuple(labels_of(model).values()) if loaded_model.task.has_labels else (),
        precision=str(plain.dtype).removeprefix("torch."),
        attention=str(getattr(config_of(model), "_attn_implementation", None) or "its own"),
        layers=layers_of(model),
        records=len(watcher.taps),
        maps=() if without_maps else tuple(_map_shape(tap.map.shape) for tap in watcher.taps),
        streams={name: mask.shape[1] for name, mask in real_tokens(probe).items()},
        stream=scored_stream(probe),
        tokens=len(raw),
        grid=_grid(probe),
        special_tokens=_special_tokens(one, probe, loaded_model.tokenizer),
        register_tokens=_registers(one, probe),
        readout="unknown without maps" if without_maps else _readout_name(probe),
        logit_difference=difference,
        largest_logit=largest,
        first_token_share=_share(raw),
        first_content_share=first_content,
        methods=methods,
        completeness=completeness,
        problems=(*_logit_problems(difference, largest, plain), *failures),
        notes=(
            *loaded_model.notes,
            *(without_maps or _record_notes(watcher, model)),
            *_collapse_notes(first_content, len(content)),
            *_default_notes(model, inputs, target, methods),
        ),
        memory_tokens=tokens,
        memory={} if tokens is None else _memory(model, tokens, [name for name in methods if methods[name] is None]),
        memory_available=0 if tokens is None else available_bytes(model),
    )


def _probe(model: nn.Module, inputs: Inputs, target: Target) -> tuple[Trace, tuple[str, ...]]:
    """Trace the last map; for a text model without maps, trace its tokens and return the reason."""
    try:
        return trace(model, inputs, target, reads=Reads(maps="last")), ()
    except NoMaps as error:
        probe = trace(model, inputs, target, reads=Reads(inputs="gradients"))
        if not probe.readouts:  # not a text: its tokens are unknown
            raise
        return probe, (reason_of(error),)


def _memory(model: nn.Module, tokens: int, methods: Sequence[str]) -> dict[str, int | None]:
    """Memory estimate of each method; None if measuring it ran out of memory."""
    sizes: dict[str, int | None] = {}
    for name in methods:
        try:
            sizes[name] = estimate_memory(model, tokens, name)
        except OutOfMemory:
            sizes[name] = None
    return sizes


def _neutral(loaded_model: LoadedModel) -> tuple[EncodedExample, Target]:
    """A sample input and its target: noise, one or two plain sentences, or both."""
    if loaded_model.processor is None:
        raise WhyformerError(f"{loaded_model.name} has no processor: pass its tokenizer or image processor.")
    modality = known_modalities()[loaded_model.task.modality]
    seen: list[Any] = [] if modality.noise is None else [modality.noise(loaded_model)]
    if modality.is_prompt:
        return encode(loaded_model, seen, truncate=True)[0], "predicted"
    is_alone = loaded_model.tokenizer is None and not loaded_model.task.cuts_out
    parts = seen if is_alone else [*seen, *_sentences(loaded_model)]
    return encode_with_target(loaded_model, tuple(parts) if len(parts) == 2 else parts[0])


def encode_with_target(loaded_model: LoadedModel, example: Any) -> tuple[EncodedExample, Target]:
    """Encode an example, and return it with a target that applies to it."""
    if not needs_example(loaded_model, [example]):
        return encode(loaded_model, [example], truncate=True)[0], "predicted"
    target = Pixel(0.5, 0.5) if loaded_model.task.cuts_out else "predicted"  # noise may have no mask
    targets = head_targets(loaded_model, [example], target, truncate=True)[:1]
    return targets[0].encoded, score_of(targets)


def _sentences(loaded_model: LoadedModel) -> list[Any]:
    """A sample input: a sentence, with a question, a mask, a choice or a second sentence where needed."""
    match loaded_model.task.answer:
        case "span":
            return [STORY_QUESTION, SENTENCE]
        case "choice":
            return [STORY_QUESTION, [SENTENCE]]
        case "embedding" | "next sentence":
            return [STORY_QUESTION, SENTENCE]
        case "mask":
            return [(0.5, 0.5)]
        case "masked word":
            return [f"{loaded_model.tokenizer.mask_token} {SENTENCE}"]
        case _:
            return [SENTENCE]


def _answer(output: Any) -> Tensor:
    """The model's answer: its logits, a mask's, the similarity of a pair, or the states of its text."""
    masks = ("masks_queries_logits", "pred_masks")
    named = (getattr(output, name, None) for name in ("logits_per_image", "start_logits", *masks, "last_hidden_state"))
    answer = next((value for value in named if isinstance(value, Tensor)), None)
    answer = all_logits(output) if answer is None else answer
    assert answer is not None
    return answer


def _methods(
    model: nn.Module, inputs: Inputs, target: Target, names: Iterable[str]
) -> tuple[dict[str, str | None], dict[str, float], list[str]]:
    """For each method None or the reason why it does not apply, its completeness, and the problems."""
    reasons: dict[str, str | None] = {}
    completeness: dict[str, float] = {}
    failures: dict[str, list[str]] = {}  # failed methods by reason
    for name in names:
        method = method_named(name)
        try:
            scores = method(trace(model, inputs, target, reads=method.reads))
            reasons[name] = None
            if scores.completeness is not None:
                completeness[name] = float(scores.completeness.max())
            if not all(bool(torch.isfinite(values).all()) for values in scores.values()):
                reasons[name] = INFINITE
                failures.setdefault(INFINITE, []).append(name)
        except UnsupportedModel as reason:
            reasons[name] = reason_of(reason)
        except Exception as failure:  # keep the other findings in any case
            reasons[name] = reason_of(failure)
            failures.setdefault(reason_of(failure), []).append(name)
    return reasons, completeness, [_failure(names, reason) for reason, names in failures.items()]


def _failure(names: Sequence[str], reason: str) -> str:
    """Describe in one sentence how these methods failed."""
    subject = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
    if reason == INFINITE:
        return f"{subject} {reason if len(names) == 1 else reason.replace('gives', 'give')}"
    return f"{subject} {'fails' if len(names) == 1 else 'fail'}: {reason}"


def _logit_problems(difference: float, largest: float, logits: Logits) -> list[str]:
    """Report recorded logits that differ; half precision rounds both runs by more than the tolerance."""
    allowed = max(TOLERANCE, 8 * torch.finfo(logits.dtype).eps) * largest
    if difference <= allowed:
        return []
    return [f"The recorded logits differ by {difference:.2g} from the plain model's (largest {largest:.2g})."]


def _record_notes(watcher: Watcher, model: nn.Module) -> tuple[str, ...]:
    layers = layers_of(model)
    if layers is None or watcher.seen == layers:
        return ()
    return (
        f"{watcher.seen} attention operations for {layers} layers: only those that reach the answer are explained.",
    )


def _collapse_notes(share: float, count: int) -> tuple[str, ...]:
    if share <= COLLAPSE or count == 1:
        return ()
    return (
        f"raw_attention puts {share:.0%} of its score on the first of {count} content tokens: prefer another method.",
    )


def _default_notes(
    model: nn.Module, inputs: Inputs, target: Target, methods: Mapping[str, str | None]
) -> tuple[str, ...]:
    """Name the default method if it differs from the usual one."""
    name, way = default_for(model)
    if methods.get(name) is None:
        return () if (name, way) == DEFAULT_CHOICE else (f"Default method: {name} by {way}.",)
    try:
        remarks = attribute(model, inputs, target).remarks
    except WhyformerError:
        return ()
    return tuple(f"Default method: {remark}" for remark in remarks if name in remark)


def _content(one: EncodedExample, probe: Trace) -> Sequence[int]:
    if one.chunk is not None and scored_stream(probe) in ("text", "source"):
        return one.chunk.positions
    prefix = _prefix(one, probe) if one.chunk is None or scored_stream(probe) == "image" else 0
    return range(prefix, probe.masks[scored_stream(probe)].shape[1])


def _share(scores: Tensor) -> float:
    """The share of the first score."""
    total = float(scores.sum())
    return float(scores[0]) / total if total > 0 else 0.0


def _map_shape(shape: torch.Size) -> tuple[int, int, int]:
    *heads, queries, keys = shape
    return math.prod(heads), queries, keys


def _grid(probe: Trace) -> tuple[int, int] | None:
    _, example = main_input(probe.question.inputs)
    if example.dim() != 4 or "image" not in probe.masks:
        return None
    return patch_grid(probe.question.model, (example.shape[-2], example.shape[-1]), probe.masks["image"].shape[1])


def _registers(one: EncodedExample, probe: Trace) -> int:
    count = getattr(config_of(probe.question.model), "num_register_tokens", 0)
    return min(int(count or 0), _prefix(one, probe)) if "image" in probe.masks else 0


def _special_tokens(one: EncodedExample, probe: Trace, tokenizer: Any) -> tuple[str, ...]:
    if one.chunk is not None:
        names = tokenizer.convert_ids_to_tokens(one.chunk.encoding["input_ids"])
        return tuple(name for position, name in enumerate(names) if position not in one.chunk.positions)
    return ("class", "distillation")[: _prefix(one, probe) - _registers(one, probe)]


def _prefix(one: EncodedExample, probe: Trace) -> int:
    """The number of tokens before those of the input: of a picture, before its patches."""
    model, inputs = probe.question.model, probe.question.inputs
    if "image" in probe.masks:
        return prefix_length(model, inputs, probe.masks["image"].shape[1])
    lengths = {stream: mask.shape[1] for stream, mask in probe.masks.items()}
    own = (known_modalities()[name].place for name in one.parts if name != "written")
    places = (place(model, inputs, lengths) for place in own if place is not None)
    return next((place.first for place in places if place is not None), 0)


def _family_name(model: nn.Module, inputs: Inputs) -> str:
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if FAMILIES.get(kind) is family_of(model, inputs):
        return kind
    return f"{kind or 'unknown'}, which needs no row in the table: one stream, with the read-out found by gradient"


def _readout_name(probe: Trace) -> str:
    """The read-out of each stream that the answer is read from."""
    rows = {stream.name: stream.readout for stream in probe.question.family.streams if stream.is_read}
    names = []
    for readout in probe.readouts:
        kind, positions = rows.get(readout.stream), (readout.weights[0] != 0).nonzero()[:, 0].tolist()
        name = kind(probe.question.model) if callable(kind) else kind
        count = readout.weights.shape[1]
        where = f"token {positions[0] + 1} of {count}" if len(positions) == 1 else f"{len(positions)} of {count} tokens"
        names.append(name or f"{where}, by the gradient")
    if len(names) == 1:
        return names[0]
    return "; ".join(f"{readout.stream}: {name}" for readout, name in zip(probe.readouts, names, strict=True))
