"""The calls: tensors in and raw scores out, or examples in and Explanations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from whyformer.axes import Inputs, StreamScores
from whyformer.errors import WhyformerError
from whyformer.examples import image_of, text_of
from whyformer.explanation import Explanation, Layout, Part, Patches, WordPieces
from whyformer.families import main_input, patch_grid
from whyformer.inputs import Chunk, Picture, black, chunks_of, collated, covered_box, length_limit
from whyformer.loading import Loaded, loaded
from whyformer.methods import Method, check_options, method_named
from whyformer.score import Contrast, Label, Target, logits_of
from whyformer.trace import Trace, trace

BATCH_SIZE = 16


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
    position, or a weight per position. `inputs_at_once` bounds how many inputs a method that repeats them runs at once.
    """
    chosen = method_named(method)
    check_options(chosen, options)
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
    batch_size: int = BATCH_SIZE,
    progress: bool = False,
    **options: Any,
) -> list[Explanation]:
    """One Explanation per example, in their order, computed in batches.

    Texts beyond the model's limit are explained in overlapping chunks, a token's score being the mean over the chunks
    that see it and the answer that of the mean logits; `truncate` explains the first chunk alone.
    """
    chosen = method_named(method)
    check_options(chosen, options)
    if batch_size < 1:
        raise WhyformerError(f"batch_size={batch_size}: at least 1.")
    subject = loaded(model, processor)
    pieces = _pieces(subject, examples, truncate=truncate)
    count = 1 + max((piece.example for piece in pieces), default=-1)
    targets = _settled(subject, pieces, target, count, batch_size)
    tensors = _as_tensors(options, subject)
    found: list[list[_Found]] = [[] for _ in range(count)]
    batches = list(_batches(pieces, batch_size))
    for batch in track(batches, f"{method} on {subject.name}", transient=True, disable=not progress):
        each = targets if not isinstance(targets, list) else [targets[piece.example] for piece in batch]
        asked = trace(subject.model, _inputs(subject, batch), each, reads=chosen.reads, readout=readout)
        for piece, result in zip(batch, _found(asked, chosen, tensors, batch), strict=True):
            found[piece.example].append(result)
    return [_explanation(parts, subject, chosen, options) for parts in found]


def _as_tensors(options: dict[str, Any], subject: Loaded) -> dict[str, Any]:
    """The options with a black baseline in the model's own colours, which only its processor knows."""
    asked_for = options.get("baseline")
    is_black = isinstance(asked_for, str) and asked_for == "black"
    return options | {"baseline": black(subject.processor)} if is_black and subject.sees_pictures else options


@dataclass(frozen=True)
class _Found:
    """What one piece gave: its part of the explanation, and the answer it was about."""

    stream: str
    part: Part
    index: int | None
    name: str
    logits: Tensor | None


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
    each: list[Label] = [target] * count if isinstance(target, (str, int)) else list(target)
    if len(each) != count:
        raise WhyformerError(f"{len(each)} targets for {count} examples: give one for all, or one each.")
    several = [p for p in pieces if each[p.example] == "predicted" and sum(q.example == p.example for q in pieces) > 1]
    logits: dict[int, list[Tensor]] = {}
    for batch in _batches(several, batch_size):
        with torch.no_grad():
            output = logits_of(subject.model(**_inputs(subject, batch)))
        for piece, row in zip(batch, output, strict=True):
            logits.setdefault(piece.example, []).append(row)
    for example, rows in logits.items():
        each[example] = int(torch.stack(rows).mean(dim=0).argmax())
    return each


def _inputs(subject: Loaded, batch: Sequence[Picture | Chunk]) -> Inputs:
    place = next(subject.model.parameters())
    return {
        name: value.to(place.device, place.dtype if value.is_floating_point() else value.dtype)
        for name, value in collated(batch, subject.processor).items()
    }


def _found(asked: Trace, method: Method, options: dict[str, Any], batch: Sequence[Picture | Chunk]) -> Iterator[_Found]:
    (stream, scores), *_ = method.scores(asked, **options).items()
    logits = None if asked.asked.indices[0] is None else logits_of(asked.output).detach().float().cpu()
    for row, piece in enumerate(batch):
        layout, positions = _layout(piece, asked)
        values = scores[row, positions].float().cpu().numpy()
        index, name = asked.asked.indices[row], asked.asked.names[row]
        yield _Found(stream, Part(layout, values), index, name, None if logits is None else logits[row])


def _layout(piece: Picture | Chunk, asked: Trace) -> tuple[Layout, Tensor]:
    if isinstance(piece, Chunk):
        return piece.layout, torch.tensor(piece.positions)
    tokens = asked.readout.weights.shape[1]
    _, pixels = main_input(asked.question.inputs)
    rows, columns = patch_grid(asked.question.model, (pixels.shape[-2], pixels.shape[-1]), tokens)
    return Patches(piece.image, rows, columns, piece.box), torch.arange(tokens - rows * columns, tokens)


def _explanation(found: Sequence[_Found], subject: Loaded, method: Method, options: dict[str, Any]) -> Explanation:
    first = found[0]
    part = first.part if len(found) == 1 else _joined([piece.part for piece in found])
    return Explanation(
        parts={first.stream: part},
        target=first.name,
        probability=_probability(found, subject.model),
        method=method.name,
        model=subject.name,
        options={name: parameter.default for name, parameter in method.options.items()} | options,
        notes=tuple(_notes(len(found), part, method)),
    )


def _notes(chunks: int, part: Part, method: Method) -> Iterator[str]:
    if chunks > 1:
        yield (
            f"The text is longer than the model's limit: explained in {chunks} overlapping chunks, a token's score "
            "being the mean over the chunks that see it, the answer that of the mean logits."
        )
    if not np.any(part.scores):
        yield f"{method.name} found nothing: every score is zero."


def _joined(parts: Sequence[Part]) -> Part:
    """The chunks of one text put together again: a token's score is the mean over the chunks that see it."""
    seen: dict[tuple[int, tuple[int, int], int], tuple[str, list[float]]] = {}
    for part in parts:
        assert isinstance(part.layout, WordPieces)
        twins: Counter[tuple[int, tuple[int, int]]] = Counter()  # the bytes of one character share its offsets
        places = zip(part.layout.segments, part.layout.offsets, part.layout.tokens, part.scores, strict=True)
        for segment, offset, token, score in places:
            place = (segment, offset, twins[segment, offset])
            twins[segment, offset] += 1
            seen.setdefault(place, (token, []))[1].append(float(score))
    order = sorted(seen)
    layout = WordPieces(
        texts=parts[0].layout.texts,  # type: ignore[union-attr]
        tokens=tuple(seen[place][0] for place in order),
        segments=tuple(segment for segment, _, _ in order),
        offsets=tuple(offset for _, offset, _ in order),
    )
    return Part(layout, np.array([np.mean(seen[place][1]) for place in order], dtype=np.float32))


def _probability(found: Sequence[_Found], model: nn.Module) -> float | None:
    """What the model gives the label asked about; None for regression and scores of one's own."""
    index = found[0].index
    rows = [piece.logits for piece in found if piece.logits is not None]
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if index is None or len(rows[0]) == 1 or problem == "regression":
        return None
    logits = torch.stack(rows).mean(dim=0)
    return float(logits.sigmoid()[index] if problem == "multi_label_classification" else logits.softmax(dim=0)[index])


def _batches(pieces: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]
