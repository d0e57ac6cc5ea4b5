"""What the encoded parts of an example gave, and the Explanation they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.axes import StreamScores
from whyformer.inputs.encode import EncodedExample, Picture
from whyformer.inputs.layouts import Box, Boxes, Layout, Patches, WordPieces
from whyformer.methods.registry import Method
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import patch_grid
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.targets.scores import logits_of
from whyformer.tracing.trace import Trace

COARSE = 0.1  # of the answer's score may be missing from the scores' sum before a note says so


@dataclass(frozen=True)
class Answer:
    """What one encoded part of an example gave: the parts of its explanation, and the label it was about."""

    one: EncodedExample
    parts: Mapping[str, Part]
    index: int | None
    name: str
    logits: Tensor | None
    is_sole: bool
    completeness: float | None = None
    remarks: tuple[str, ...] = ()


def answers(
    asked: Trace, method: Method, options: Mapping[str, Any], batch: Sequence[EncodedExample], loaded_model: LoadedModel
) -> Iterator[Answer]:
    """One answer per encoded example of the batch."""
    nothing = {stream: torch.zeros(mask.shape, device=mask.device) for stream, mask in asked.masks.items()}
    scores = nothing | method.scores(asked, **options)  # first_block may leave a stream without any
    if not loaded_model.writes:  # whose last token is a word like any other
        scores = _without_own_entry(scores, asked)
    logits = (
        None if asked.asked.indices[0] is None else logits_of(asked.output, asked.asked.place).detach().float().cpu()
    )
    for row, one in enumerate(batch):
        parts = {
            name: Part(layout, scores[stream][row, positions].cpu().numpy())
            for name, stream, layout, positions in _layouts(one, row, asked, by_pixel="pixels" in scores)
            if layout.size
        }
        index, name, found = asked.asked.indices[row], asked.asked.names[row], asked.findings
        own = None if logits is None else logits[row]
        completeness = None if found.completeness is None else float(found.completeness[row])
        remarks = (*asked.asked.notes[row : row + 1], *found.remarks)
        yield Answer(one, parts, index, name, own, asked.asked.is_sole, completeness, remarks)


def _without_own_entry(scores: StreamScores, asked: Trace) -> StreamScores:
    """A single position that an example's answer is read from gets no score of its own."""
    blanked = dict(scores)
    for readout in asked.readouts:
        read = readout.weights != 0
        if readout.stream in scores:
            is_single = read.sum(dim=1, keepdim=True) == 1
            blanked[readout.stream] = scores[readout.stream].masked_fill(read & is_single, 0.0)
    return blanked


def _layouts(
    one: EncodedExample, row: int, asked: Trace, *, by_pixel: bool
) -> Iterator[tuple[str, str, Layout, Tensor]]:
    """Each part of an encoded example: its name, its stream, its layout, and its tokens' positions in the stream."""
    inputs, lengths = asked.question.inputs, {name: mask.shape[1] for name, mask in asked.masks.items()}
    if one.chunk is not None:
        stream = "source" if "source" in lengths else "text"
        yield stream, stream, one.chunk.layout, torch.tensor(one.chunk.positions)
    if one.written is not None:
        yield "target", "target", one.written.layout, torch.tensor(one.written.positions, dtype=torch.long)
    if one.picture is not None:
        height, width = inputs["pixel_values"].shape[-2:]
        stream = "pixels" if by_pixel else "image" if "image" in lengths else "text"
        length = height * width if by_pixel else lengths[stream]
        grid = (height, width) if by_pixel else patch_grid(asked.question.model, (height, width), length)
        layout = _grid(one.picture, row, asked, grid)
        yield "image", stream, layout, torch.arange(length - layout.size, length)
    if one.regions is not None:
        corners = [(float(a), float(b), float(c), float(d)) for a, b, c, d in one.regions.boxes]
        boxes = Boxes(one.regions.image, tuple(corners))
        stream = "image" if "image" in lengths else "text"
        first = 0 if stream == "image" else inputs["input_ids"].shape[1]  # in one stream, regions follow the words
        yield "image", stream, boxes, torch.arange(first, first + boxes.size)


def _grid(picture: Picture, row: int, asked: Trace, grid: tuple[int, int]) -> Patches:
    inputs = asked.question.inputs
    height, width = inputs["pixel_values"].shape[-2:]
    left, top, right, bottom = picture.box
    if "pixel_mask" in inputs:  # a picture smaller than the others of its batch lies at the top left of its pixels
        seen = inputs["pixel_mask"][row].bool()
        right *= width / int(seen.any(dim=0).sum())
        bottom *= height / int(seen.any(dim=1).sum())
    return Patches(picture.image, *grid, (left, top, right, bottom), _outline(picture, row, asked))


def _outline(picture: Picture, row: int, asked: Trace) -> Box | None:
    """The box of the detection that is asked about, in the picture's pixels."""
    found = getattr(asked.output, "pred_boxes", None)
    if found is None or asked.asked.place is None:
        return None
    x, y, width, height = found[row, asked.asked.place[row]].tolist()
    across, down = picture.image.size
    return ((x - width / 2) * across, (y - height / 2) * down, (x + width / 2) * across, (y + height / 2) * down)


def explanation_of(
    found: Sequence[Answer], loaded_model: LoadedModel, method: Method, options: Mapping[str, Any]
) -> Explanation:
    """The Explanation of one example, from the answers of its encoded parts."""
    first = found[0]
    parts = dict(first.parts) if len(found) == 1 else {next(iter(first.parts)): _joined(found)}
    return Explanation(
        parts=parts,
        target=first.name,
        probability=_probability(found, loaded_model.model),
        method=method.name,
        model=loaded_model.name,
        options={name: parameter.default for name, parameter in method.options.items()} | dict(options),
        notes=tuple(_notes(found, parts, method)),
        completeness=max((part.completeness for part in found if part.completeness is not None), default=None),
    )


def _notes(found: Sequence[Answer], parts: Mapping[str, Part], method: Method) -> Iterator[str]:
    if len(found) > 1:
        yield (
            f"The text is longer than the model's limit: explained in {len(found)} overlapping chunks, a token's score "
            "being the mean over the chunks that see it, the answer that of the mean logits."
        )
    chunk = found[0].one.chunk
    if chunk is not None and chunk.is_truncated:
        yield "The text is longer than the model's limit: only its beginning was explained, as asked."
    yield from filter(None, found[0].remarks)
    missing = max((part.completeness for part in found if part.completeness is not None), default=0.0)
    if missing > COARSE:
        why = "more steps may help" if "steps" in method.options else "biases have their share"
        yield f"The scores miss what they should add up to by {missing:.0%}: {why}."
    for name, part in parts.items():
        if not np.any(part.scores):
            yield f"{method.name} found nothing{f' in the {name}' if len(parts) > 1 else ''}: every score is zero."


def _joined(found: Sequence[Answer]) -> Part:
    """The chunks of one text put together again: a token's score is the mean over the chunks that see it."""
    seen: dict[tuple[int, int], tuple[str, tuple[int, int], list[float]]] = {}
    for answer in found:
        (part,) = answer.parts.values()
        assert answer.one.chunk is not None
        assert isinstance(part.layout, WordPieces)
        rows = zip(answer.one.chunk.places, part.layout.tokens, part.layout.offsets, part.scores, strict=True)
        for place, token, offset, score in rows:
            seen.setdefault(place, (token, offset, []))[2].append(float(score))
    order = sorted(seen)
    assert found[0].one.chunk is not None
    joined = WordPieces(
        texts=found[0].one.chunk.layout.texts,
        tokens=tuple(seen[place][0] for place in order),
        segments=tuple(segment for segment, _ in order),
        offsets=tuple(seen[place][1] for place in order),
    )
    return Part(joined, np.array([np.mean(seen[place][2]) for place in order], dtype=np.float32))


def _probability(found: Sequence[Answer], model: nn.Module) -> float | None:
    """What the model gives the label asked about; None for regression and scores of one's own."""
    index = found[0].index
    rows = [one.logits for one in found if one.logits is not None]
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if index is None or len(rows[0]) == 1 or problem == "regression":
        return None
    logits = torch.stack(rows).mean(dim=0)
    is_sole = found[0].is_sole or problem == "multi_label_classification"
    return float(logits.sigmoid()[index] if is_sole else logits.softmax(dim=0)[index])
