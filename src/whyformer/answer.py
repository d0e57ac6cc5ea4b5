"""What a model's pieces of an example gave, and the Explanation they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.explanation import Explanation, Layout, Part, Patches, WordPieces
from whyformer.families import main_input, patch_grid
from whyformer.inputs import Chunk, Picture
from whyformer.loading import Loaded
from whyformer.methods import Method
from whyformer.score import logits_of
from whyformer.trace import Trace


@dataclass(frozen=True)
class Answer:
    """What one piece of an example gave: its part of the explanation, and the label it was about."""

    piece: Picture | Chunk
    stream: str
    part: Part
    index: int | None
    name: str
    logits: Tensor | None


def answers(
    asked: Trace, method: Method, options: Mapping[str, Any], batch: Sequence[Picture | Chunk]
) -> Iterator[Answer]:
    """One answer per piece of the batch. A single position that the answer is read from gets no score of its own."""
    (stream, scores), *_ = method.scores(asked, **options).items()
    if bool(((asked.readout.weights != 0).sum(dim=1) == 1).all()):
        scores = scores.masked_fill(asked.readout.weights != 0, 0.0)
    logits = None if asked.asked.indices[0] is None else logits_of(asked.output).detach().float().cpu()
    for row, piece in enumerate(batch):
        layout, positions = _layout(piece, asked)
        part = Part(layout, scores[row, positions].cpu().numpy())
        index, name = asked.asked.indices[row], asked.asked.names[row]
        yield Answer(piece, stream, part, index, name, None if logits is None else logits[row])


def _layout(piece: Picture | Chunk, asked: Trace) -> tuple[Layout, Tensor]:
    if isinstance(piece, Chunk):
        return piece.layout, torch.tensor(piece.positions)
    tokens = asked.readout.weights.shape[1]
    _, pixels = main_input(asked.question.inputs)
    rows, columns = patch_grid(asked.question.model, (pixels.shape[-2], pixels.shape[-1]), tokens)
    return Patches(piece.image, rows, columns, piece.box), torch.arange(tokens - rows * columns, tokens)


def explanation_of(found: Sequence[Answer], subject: Loaded, method: Method, options: Mapping[str, Any]) -> Explanation:
    """The Explanation of one example, from the answers of its pieces."""
    first = found[0]
    part = first.part if len(found) == 1 else _joined(found)
    return Explanation(
        parts={first.stream: part},
        target=first.name,
        probability=_probability(found, subject.model),
        method=method.name,
        model=subject.name,
        options={name: parameter.default for name, parameter in method.options.items()} | dict(options),
        notes=tuple(_notes(found, part, method)),
    )


def _notes(found: Sequence[Answer], part: Part, method: Method) -> Iterator[str]:
    if len(found) > 1:
        yield (
            f"The text is longer than the model's limit: explained in {len(found)} overlapping chunks, a token's score "
            "being the mean over the chunks that see it, the answer that of the mean logits."
        )
    if isinstance(found[0].piece, Chunk) and found[0].piece.is_truncated:
        yield "The text is longer than the model's limit: only its beginning was explained, as asked."
    if not np.any(part.scores):
        yield f"{method.name} found nothing: every score is zero."


def _joined(found: Sequence[Answer]) -> Part:
    """The chunks of one text put together again: a token's score is the mean over the chunks that see it."""
    seen: dict[tuple[int, int], tuple[str, tuple[int, int], list[float]]] = {}
    for answer in found:
        layout = answer.part.layout
        assert isinstance(answer.piece, Chunk)
        assert isinstance(layout, WordPieces)
        for place, token, offset, score in zip(
            answer.piece.places, layout.tokens, layout.offsets, answer.part.scores, strict=True
        ):
            seen.setdefault(place, (token, offset, []))[2].append(float(score))
    order = sorted(seen)
    first = found[0].part.layout
    assert isinstance(first, WordPieces)
    joined = WordPieces(
        texts=first.texts,
        tokens=tuple(seen[place][0] for place in order),
        segments=tuple(segment for segment, _ in order),
        offsets=tuple(seen[place][1] for place in order),
    )
    return Part(joined, np.array([np.mean(seen[place][2]) for place in order], dtype=np.float32))


def _probability(found: Sequence[Answer], model: nn.Module) -> float | None:
    """What the model gives the label asked about; None for regression and scores of one's own."""
    index = found[0].index
    rows = [piece.logits for piece in found if piece.logits is not None]
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if index is None or len(rows[0]) == 1 or problem == "regression":
        return None
    logits = torch.stack(rows).mean(dim=0)
    return float(logits.sigmoid()[index] if problem == "multi_label_classification" else logits.softmax(dim=0)[index])
