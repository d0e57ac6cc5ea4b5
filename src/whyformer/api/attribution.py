"""The calls: tensors in and raw scores out, or examples in and Explanations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.progress import track
from torch import Tensor, nn

from whyformer.api.assemble import Answer, answers, explanation_of
from whyformer.axes import Inputs, StreamScores
from whyformer.errors import WhyformerError, check_choice, with_article
from whyformer.inputs.chunks import Vocabulary
from whyformer.inputs.collate import black, model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.methods.registry import Method, check_options, method_named
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.propagation.mode import Backward
from whyformer.results.explanation import Explanation
from whyformer.targets.pairs import Pair, pairs_of, score_of
from whyformer.targets.scores import Contrast, Detection, Target, logits_of, one_each
from whyformer.tracing.trace import trace

BATCH_SIZE = {"cpu": 8, "cuda": 64}
# What is computed where nobody names a method: the best of those measured (docs/results.md).
DEFAULT_METHOD = "bi_token"
DEFAULT_BACKWARD: Backward = "libra"


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    backward: Backward | None = None,
    **options: Any,
) -> StreamScores:
    """Raw scores at every position of every stream, for a batch of tensors as the model takes them.

    `readout` says where the answer is read if the model's family does not: "first", "mean", "first+mean", "last", a
    position, or a weight per position. `inputs_at_once` bounds how many copies of the batch a method that repeats it
    runs at once, counted in inputs; the batch itself is never split. `backward` "libra" takes gradients by LibraGrad's
    rules, under any method that reads gradients. Without a method it is what docs/results.md found best, bi_token with
    "libra"; a method that is named is its paper's, with "gradient".
    """
    chosen, backward = chosen_method(method, backward)
    check_options(chosen, options)
    if not isinstance(inputs, Mapping):
        raise WhyformerError(
            f"inputs are tensors by name, such as {{'pixel_values': …}}, not {with_article(type(inputs).__name__)}."
        )
    how: dict[str, Any] = {"readout": readout, "inputs_at_once": inputs_at_once, "backward": backward}
    asked = trace(model, inputs, target, reads=chosen.reading(options), **how)
    return chosen.scores(asked, **options)


def explain(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    **settings: Any,
) -> Explanation:
    """Why the model answered as it did on one example: a picture, a text, a pair, or a file of them.

    Models of two senses take pairs: (picture, text), (picture, [texts]), (regions, question). A model that writes is
    asked about the next token; one with an encoder takes a text, or (text, what was written so far).

    `settings` are those of `explain_batch`, and the options of the method. Without a method it is what docs/results.md
    found best: bi_token, with gradients by LibraGrad's rules.
    """
    return explain_batch([example], model, target, method, **settings)[0]


def explain_batch(
    examples: Iterable[Any],
    model: str | Path | nn.Module | LoadedModel = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    *,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """One Explanation per example, in their order, computed in batches that suit the model's device.

    Texts beyond the model's limit are explained in overlapping chunks, a token's score being the mean over the chunks
    that see it and the answer that of the mean logits; `truncate` explains the first chunk alone.
    """
    if isinstance(examples, (str, Path)):
        raise WhyformerError(f"explain_batch takes a list of examples, not {str(examples)[:40]!r} alone: use explain.")
    check_options(chosen_method(method, backward)[0], options)
    loaded_model = resolve_model(model, processor)
    settings = {"readout": readout, "batch_size": batch_size, "progress": progress, "backward": backward, **options}
    if loaded_model.compares and not callable(target):
        pairs = pairs_of(loaded_model, list(examples), target, truncate=truncate)
        found = explain_encoded(loaded_model, [pair.one for pair in pairs], pairs, method, **settings)
        return [
            replace(x, target=pair.name, probability=pair.probability) for x, pair in zip(found, pairs, strict=True)
        ]
    return explain_encoded(loaded_model, encode(loaded_model, examples, truncate=truncate), target, method, **settings)


def explain_encoded(
    loaded_model: LoadedModel,
    encoded: Sequence[EncodedExample],
    target: Target | list[Pair],
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """`explain_batch` of examples that are encoded already."""
    chosen, backward = chosen_method(method, backward)
    check_options(chosen, options)
    if batch_size is not None and batch_size < 1:
        raise WhyformerError(f"batch_size={batch_size}: at least 1.")
    device = next(loaded_model.model.parameters()).device
    batch_size = batch_size or BATCH_SIZE.get(device.type, BATCH_SIZE["cpu"])
    targets = _settled(loaded_model, encoded, target, batch_size)
    tensors = _as_tensors(options, loaded_model)
    found: list[list[Answer]] = [[] for _ in {one.example for one in encoded}]
    batches = list(_batches(encoded, batch_size))
    for batch in track(batches, f"{chosen.name} on {loaded_model.name}", transient=True, disable=not progress):
        each = [targets[one.example] for one in batch] if isinstance(targets, list) else targets
        asked = trace(
            loaded_model.model,
            model_inputs(loaded_model, batch),
            score_of(each, loaded_model) if loaded_model.compares and not callable(each) else each,
            reads=chosen.reading(options),
            readout=readout,
            backward=backward,
            labels=Vocabulary(loaded_model.tokenizer) if loaded_model.writes else None,
        )
        for one, result in zip(batch, answers(asked, chosen, tensors, batch, loaded_model), strict=True):
            found[one.example].append(result)
    shown = options if backward == "gradient" else options | {"backward": backward}
    return [explanation_of(parts, loaded_model, chosen, shown) for parts in found]


def chosen_method(name: str | None, backward: str | None = None) -> tuple[Method, Backward]:
    """The method, and how its gradients are taken."""
    method = method_named(DEFAULT_METHOD if name is None else name)
    if backward is None:
        return method, DEFAULT_BACKWARD if name is None else "gradient"
    check_choice("backward", backward, Backward)
    if backward != "gradient" and method.reads in ("last map", "maps", "last relevance", "input relevance"):
        raise WhyformerError(f"{method.name} reads no gradient: backward={backward!r} has nothing to do there.")
    return method, cast(Backward, backward)


def _as_tensors(options: dict[str, Any], loaded_model: LoadedModel) -> dict[str, Any]:
    """The options with a black baseline in the model's own colours, which only its processor knows."""
    asked_for = options.get("baseline")
    is_black = isinstance(asked_for, str) and asked_for == "black"
    return (
        options | {"baseline": black(loaded_model.image_processor)}
        if is_black and loaded_model.sees_pictures
        else options
    )


def _settled(loaded_model: LoadedModel, encoded: Sequence[EncodedExample], target: Any, batch_size: int) -> Any:
    """The target of each example; one that is encoded in several parts is predicted from all of them."""
    if loaded_model.compares:
        return target
    if loaded_model.writes:
        return _as_tokens(target, loaded_model, len({one.example for one in encoded}))
    if callable(target) or isinstance(target, (Contrast, Detection)):
        return target
    each = one_each(target, len({one.example for one in encoded}))
    parts = Counter(one.example for one in encoded)
    several = [one for one in encoded if each[one.example] == "predicted" and parts[one.example] > 1]
    logits: dict[int, list[Tensor]] = {}
    for batch in _batches(several, batch_size):
        with torch.no_grad():
            output = logits_of(loaded_model.model(**model_inputs(loaded_model, batch)))
        for one, row in zip(batch, output, strict=True):
            logits.setdefault(one.example, []).append(row)
    for example, rows in logits.items():
        each[example] = int(torch.stack(rows).mean(dim=0).argmax())
    return each


def _as_tokens(target: Target, loaded_model: LoadedModel, count: int) -> Target:
    """A target in words as the tokens they are, one for each example."""
    if isinstance(target, Contrast):
        return Contrast(_token(target.label, loaded_model), _token(target.other, loaded_model))
    if callable(target) or isinstance(target, Detection):
        return target
    return [_token(label, loaded_model) for label in one_each(target, count)]


def _token(label: Any, loaded_model: LoadedModel) -> Any:
    """The token that a word begins with a space is, or failing that without one."""
    if not isinstance(label, str) or label == "predicted":
        return label
    for text in (f" {label}", label):
        ids = loaded_model.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != loaded_model.tokenizer.unk_token_id:
            return ids[0]
    ids = loaded_model.tokenizer(label, add_special_tokens=False)["input_ids"]
    encoded = ", ".join(repr(Vocabulary(loaded_model.tokenizer)[index]) for index in ids[:6])
    raise WhyformerError(
        f"{label!r} is not one token of {loaded_model.name} but several ({encoded}): ask about the first."
    )


def _batches(encoded: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(encoded), size):
        yield encoded[start : start + size]
