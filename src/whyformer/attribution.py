"""The calls: tensors in and raw scores out, or examples in and Explanations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from whyformer.answer import Answer, answers, explanation_of
from whyformer.axes import Inputs, StreamScores
from whyformer.errors import WhyformerError
from whyformer.examples import image_of, text_of
from whyformer.explanation import Explanation
from whyformer.inputs import Chunk, Picture, black, chunks_of, covered_box, length_limit, model_inputs
from whyformer.loading import Loaded, loaded
from whyformer.methods import check_options, method_named
from whyformer.score import Contrast, Label, Target, logits_of, one_each
from whyformer.trace import trace

BATCH_SIZE = {"cpu": 8, "cuda": 64}


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    method: str = "bi_token",
    *,
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    **options: Any,
) -> StreamScores:
    """Raw scores at every position of every stream, for a batch of tensors as the model takes them.

    `readout` says where the answer is read if the model's family does not: "first", "mean", "first+mean", "last", a
    position, or a weight per position. `inputs_at_once` bounds how many copies of the batch a method that repeats it
    runs at once, counted in inputs; the batch itself is never split.
    """
    chosen = method_named(method)
    check_options(chosen, options)
    if not isinstance(inputs, Mapping):
        raise WhyformerError(
            f"inputs are tensors by name, such as {{'pixel_values': …}}, not a {type(inputs).__name__}."
        )
    asked = trace(model, inputs, target, reads=chosen.reads, readout=readout, inputs_at_once=inputs_at_once)
    return chosen.scores(asked, **options)


def explain(
    example: Any,
    model: str | Path | nn.Module | Loaded = "mini-vit",
    target: Target = "predicted",
    method: str = "bi_token",
    **settings: Any,
) -> Explanation:
    """Why the model answered as it did on one example: a picture, a text, a pair of texts, or a file of them.

    `settings` are those of `explain_batch`, and the options of the method.
    """
    return explain_batch([example], model, target, method, **settings)[0]


def explain_batch(
    examples: Iterable[Any],
    model: str | Path | nn.Module | Loaded = "mini-vit",
    target: Target = "predicted",
    method: str = "bi_token",
    *,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    **options: Any,
) -> list[Explanation]:
    """One Explanation per example, in their order, computed in batches that suit the model's device.

    Texts beyond the model's limit are explained in overlapping chunks, a token's score being the mean over the chunks
    that see it and the answer that of the mean logits; `truncate` explains the first chunk alone.
    """
    chosen = method_named(method)
    check_options(chosen, options)
    if batch_size is not None and batch_size < 1:
        raise WhyformerError(f"batch_size={batch_size}: at least 1.")
    if isinstance(examples, (str, Path)):
        raise WhyformerError(f"explain_batch takes a list of examples, not {str(examples)[:40]!r} alone: use explain.")
    subject = loaded(model, processor)
    device = next(subject.model.parameters()).device
    batch_size = batch_size or BATCH_SIZE.get(device.type, BATCH_SIZE["cpu"])
    pieces = _pieces(subject, examples, truncate=truncate)
    count = len({piece.example for piece in pieces})
    targets = _settled(subject, pieces, target, count, batch_size)
    tensors = _as_tensors(options, subject)
    found: list[list[Answer]] = [[] for _ in range(count)]
    batches = list(_batches(pieces, batch_size))
    for batch in track(batches, f"{method} on {subject.name}", transient=True, disable=not progress):
        each = targets if not isinstance(targets, list) else [targets[piece.example] for piece in batch]
        asked = trace(
            subject.model,
            model_inputs(subject.model, batch, subject.processor),
            each,
            reads=chosen.reads,
            readout=readout,
        )
        for piece, result in zip(batch, answers(asked, chosen, tensors, batch), strict=True):
            found[piece.example].append(result)
    return [explanation_of(parts, subject, chosen, options) for parts in found]


def _as_tensors(options: dict[str, Any], subject: Loaded) -> dict[str, Any]:
    """The options with a black baseline in the model's own colours, which only its processor knows."""
    asked_for = options.get("baseline")
    is_black = isinstance(asked_for, str) and asked_for == "black"
    return options | {"baseline": black(subject.processor)} if is_black and subject.sees_pictures else options


def _pieces(subject: Loaded, examples: Iterable[Any], *, truncate: bool) -> list[Picture | Chunk]:
    if subject.processor is None:
        raise WhyformerError(
            f"{subject.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )
    pieces: list[Picture | Chunk] = []
    if subject.sees_pictures:
        for number, example in enumerate(examples):
            image = image_of(example)
            pieces.append(Picture(number, image, covered_box(subject.processor, image.size)))
        return pieces
    limit = length_limit(subject.model, subject.processor)
    for number, example in enumerate(examples):
        pieces.extend(chunks_of(number, text_of(example), subject.processor, limit, truncate=truncate))
    return pieces


def _settled(
    subject: Loaded, pieces: Sequence[Picture | Chunk], target: Target, count: int, batch_size: int
) -> list[Label] | Contrast | Any:
    """The target of each example; one that needs several pieces is predicted from all of them."""
    if callable(target) or isinstance(target, Contrast):
        return target
    each = one_each(target, count)
    parts = Counter(piece.example for piece in pieces)
    several = [piece for piece in pieces if each[piece.example] == "predicted" and parts[piece.example] > 1]
    logits: dict[int, list[Tensor]] = {}
    for batch in _batches(several, batch_size):
        with torch.no_grad():
            output = logits_of(subject.model(**model_inputs(subject.model, batch, subject.processor)))
        for piece, row in zip(batch, output, strict=True):
            logits.setdefault(piece.example, []).append(row)
    for example, rows in logits.items():
        each[example] = int(torch.stack(rows).mean(dim=0).argmax())
    return each


def _batches(pieces: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]
