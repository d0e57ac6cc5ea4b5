"""What the encoded parts of an example gave, and the Explanation they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import StreamScores
from whyformer.inputs.encode import EncodedExample, Picture
from whyformer.inputs.hearing import in_frames, sound_layout
from whyformer.inputs.layouts import Box, Boxes, Layout, Patches, WordPieces
from whyformer.inputs.parts import PartPlace, on_one_level, part_places, real_grid
from whyformer.inputs.pictured import PicturedPrompt
from whyformer.inputs.tokens import unknown_token_note
from whyformer.inputs.views import ScoredGrid, on_one_grid
from whyformer.methods.registry import Method
from whyformer.models.bridges import AT_QUERIES, Bridge
from whyformer.models.family import JOINT
from whyformer.models.loading import LoadedModel
from whyformer.models.task import Task
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.targets.scores import logits_of
from whyformer.tracing.trace import Trace

POINT = 0.01  # of a picture's longer side is how far the mark of a point reaches
COARSE = 0.1  # of the answer's score may be missing from the scores' sum before a note says so


@dataclass(frozen=True)
class Answer:
    """What one encoded part of an example gave: the parts of its explanation, and the label it was about."""

    encoded: EncodedExample
    parts: Mapping[str, Part]
    index: int | None
    name: str
    logits: Tensor | None
    is_sole: bool
    completeness: float | None = None
    remarks: tuple[str, ...] = ()


def answers(
    trace: Trace, method: Method, options: Mapping[str, Any], batch: Sequence[EncodedExample], task: Task
) -> Iterator[Answer]:
    """One answer per encoded example of the batch."""
    attribution = method(trace, **options)
    nothing = {stream: torch.zeros(mask.shape, device=mask.device) for stream, mask in trace.real_tokens.items()}
    scores = nothing | attribution.scores  # first_block may leave a stream without any
    if "samples" in scores and "audio" in scores:  # a sample by itself says nothing to a reader
        scores["audio"] = in_frames(scores.pop("samples"), trace.question.model, scores["audio"].shape[1])
    scores = on_one_level(trace.question.model, trace.question.inputs, scores)
    if not task.is_read_at_words:
        scores = _without_own_entry(scores, trace)
    target = trace.target
    logits = None if target.indices[0] is None else logits_of(trace.output, target.place).detach().float().cpu()
    for row, encoded in enumerate(batch):
        parts = {name: part for name, part in _parts(encoded, row, trace, scores) if part.layout.size}
        completeness = None if attribution.completeness is None else float(attribution.completeness[row])
        yield Answer(
            encoded,
            parts,
            index=target.indices[row],
            name=target.names[row],
            logits=None if logits is None else logits[row],
            is_sole=target.is_sole,
            completeness=completeness,
            remarks=(*target.notes[row : row + 1], *attribution.remarks_on(row)),
        )


def _without_own_entry(scores: StreamScores, trace: Trace) -> StreamScores:
    """A single position that an example's answer is read from gets no score of its own."""
    blanked = dict(scores)
    for readout in trace.readouts:
        read = readout.weights != 0
        if readout.stream in scores:
            is_single = read.sum(dim=1, keepdim=True) == 1
            blanked[readout.stream] = scores[readout.stream].masked_fill(read & is_single, 0.0)
    return blanked


def _parts(encoded: EncodedExample, row: int, trace: Trace, scores: StreamScores) -> Iterator[tuple[str, Part]]:
    """Each part of an encoded example by its name: the scores of its tokens, and where they are."""
    if encoded.pictured is not None and trace.question.bridge is not None and encoded.chunk is not None:
        yield "text", Part(encoded.chunk.layout, scores["text"][row, list(encoded.chunk.positions)].cpu().numpy())
        yield from picture_parts(encoded.pictured, row, trace.question.bridge, scores["image"][row].cpu().numpy())
        return
    for name, stream, layout, positions in _layouts(encoded, row, trace, scores):
        yield name, Part(layout, scores[stream][row, positions].cpu().numpy())


def picture_parts(pictured: PicturedPrompt, row: int, bridge: Bridge, scores: np.ndarray) -> Iterator[tuple[str, Part]]:
    """The pictures of a prompt with the scores of their patches, each on one grid."""
    placed = [one for one in bridge.pictures if one.example == row]
    boxes = [(number, box) for number, own in enumerate(pictured.boxes) for box in own]
    for number, picture in enumerate(pictured.pictures):
        width, height = picture.size
        grids = []
        for one, (_, (left, top, right, bottom)) in (
            pair for pair in zip(placed, boxes, strict=True) if pair[1][0] == number
        ):
            for view in one.seen.views:
                a, b, c, d = view.box  # in shares of what was seen
                across, down = right - left, bottom - top
                box = (left + a * across, top + b * down, left + c * across, top + d * down)
                values = scores[one.start + view.positions.numpy()].reshape(view.rows, view.columns)
                grids.append(ScoredGrid(values, (box[0] * width, box[1] * height, box[2] * width, box[3] * height)))
        grid = on_one_grid(grids)
        rows, columns = grid.scores.shape
        layout = Patches(picture, rows, columns, grid.box)
        name = "image" if len(pictured.pictures) == 1 else f"image {number + 1}"
        yield name, Part(layout, grid.scores.flatten())


def _layouts(
    encoded: EncodedExample, row: int, trace: Trace, scores: StreamScores
) -> Iterator[tuple[str, str, Layout, Tensor]]:
    """Each part of an encoded example: its name, its stream, its layout, and its tokens' positions in the stream."""
    lengths = {stream: values.shape[1] for stream, values in scores.items()}
    for place in part_places(trace.question.model, trace.question.inputs, lengths):
        text = encoded.chunk if place.kind == "text" else encoded.written
        if place.kind in ("text", "written") and text is not None:
            name = "text" if place.stream == JOINT else place.stream
            yield name, place.stream, text.layout, torch.tensor(text.positions, dtype=torch.long)
        elif place.kind == "picture" and encoded.picture is not None and place.grid is not None:
            layout: Layout = _patches(encoded, row, trace, place)
            yield "image", place.stream, layout, torch.arange(place.first, place.first + layout.size)
        elif place.kind == "sound" and encoded.hearing is not None:
            frames, positions = sound_layout(trace.question.model, trace.question.inputs, encoded.hearing, place.count)
            yield "audio", place.stream, frames, place.first + positions
        elif place.kind == "regions" and encoded.regions is not None:
            corners = [(float(a), float(b), float(c), float(d)) for a, b, c, d in encoded.regions.boxes]
            boxes = Boxes(encoded.regions.image, tuple(corners))
            yield "image", place.stream, boxes, torch.arange(place.first, place.first + boxes.size)


def _patches(encoded: EncodedExample, row: int, trace: Trace, place: PartPlace) -> Patches:
    inputs, picture, grid = trace.question.inputs, encoded.picture, place.grid
    assert grid is not None
    assert picture is not None
    if place.stream == JOINT:
        return Patches(picture.image, *real_grid(inputs, row, grid), picture.box)
    height, width = inputs["pixel_values"].shape[-2:]
    left, top, right, bottom = picture.box
    if "pixel_mask" in inputs:  # a picture smaller than the others of its batch lies at the top left of its pixels
        real = inputs["pixel_mask"][row].bool()
        right *= width / int(real.any(dim=0).sum())
        bottom *= height / int(real.any(dim=1).sum())
    outline = _outline(picture, row, trace) if encoded.prompt is None else _prompt_outline(picture, encoded.prompt)
    return Patches(picture.image, *grid, (left, top, right, bottom), outline)


def _prompt_outline(picture: Picture, prompt: tuple[float, ...]) -> Box:
    """The box that a model was shown, or a small one around a point, in the picture's pixels."""
    width, height = picture.image.size
    reach = POINT * max(width, height) if len(prompt) == 2 else 0.0
    left, top, right, bottom = prompt if len(prompt) == 4 else (*prompt, *prompt)
    return left * width - reach, top * height - reach, right * width + reach, bottom * height + reach


def _outline(picture: Picture, row: int, trace: Trace) -> Box | None:
    """The box of the detection that is asked about, in the picture's pixels; None where it has no area."""
    boxes = getattr(trace.output, "pred_boxes", None)
    if boxes is None or trace.target.place is None:
        return None
    x, y, width, height = boxes[row, trace.target.place[row]].tolist()
    left, top, right, bottom = picture.box
    across, down = right - left, bottom - top
    outline = (
        left + (x - width / 2) * across,
        top + (y - height / 2) * down,
        left + (x + width / 2) * across,
        top + (y + height / 2) * down,
    )
    return outline if outline[0] < outline[2] and outline[1] < outline[3] else None


def explanation_of(
    by_chunk: Sequence[Answer], loaded_model: LoadedModel, method: Method, options: Mapping[str, Any]
) -> Explanation:
    """The Explanation of one example, from the answers of its encoded parts."""
    first = by_chunk[0]
    parts = dict(first.parts) if len(by_chunk) == 1 else {next(iter(first.parts)): _joined(by_chunk)}
    return Explanation(
        parts=parts,
        target=_target_name(by_chunk, loaded_model.task),
        probability=_probability(by_chunk, loaded_model.task),
        method=method.name,
        model=loaded_model.name,
        options={name: parameter.default for name, parameter in method.options.items()} | dict(options),
        notes=tuple(_notes(by_chunk, parts, method, loaded_model)),
        completeness=max((part.completeness for part in by_chunk if part.completeness is not None), default=None),
    )


def _notes(
    by_chunk: Sequence[Answer], parts: Mapping[str, Part], method: Method, loaded_model: LoadedModel
) -> Iterator[str]:
    if len(by_chunk) > 1 and loaded_model.task.answer != "embedding":  # whose two texts are read one by one
        yield (
            f"The text is longer than the model's limit: explained in {len(by_chunk)} overlapping chunks, a token's "
            "score being the mean over the chunks that see it, the answer that of the mean logits."
        )
    chunk = by_chunk[0].encoded.chunk
    if chunk is not None and chunk.truncated_to is not None:
        yield f"The text is longer than the model's limit: only its {chunk.truncated_to} was explained, as asked."
    yield from unknown_token_note(loaded_model.tokenizer, _read_tokens(by_chunk))
    hearing = by_chunk[0].encoded.hearing
    if hearing is not None and hearing.is_truncated:
        yield "The sound is longer than the model hears at once: only its beginning was explained, as asked."
    yield from filter(None, by_chunk[0].remarks)
    yield from coarseness((part.completeness for part in by_chunk), method)
    for name, part in parts.items():
        is_said = AT_QUERIES in by_chunk[0].remarks and isinstance(part.layout, Patches)
        if not np.any(part.scores) and not is_said:
            yield f"{method.name} found nothing{f' in the {name}' if len(parts) > 1 else ''}: every score is zero."


def _read_tokens(by_chunk: Sequence[Answer]) -> list[tuple[int, str]]:
    """The id and the characters of each word piece of a text, once each."""
    tokens: dict[tuple[int, int], tuple[int, str]] = {}
    for chunk in (answer.encoded.chunk for answer in by_chunk):
        if chunk is not None:
            ids, layout = chunk.encoding["input_ids"], chunk.layout
            rows = zip(chunk.places, chunk.positions, layout.segments, layout.offsets, strict=True)
            for place, position, segment, (start, end) in rows:
                tokens[place] = ids[position], layout.texts[segment][start:end]
    return list(tokens.values())


def coarseness(incompleteness: Iterable[float | None], method: Method) -> Iterator[str]:
    """What to know where scores are far from adding up to what they should."""
    missing = max((share for share in incompleteness if share is not None), default=0.0)
    if missing > COARSE:
        option = next((name for name in ("steps", "samples") if name in method.options), None)
        why = f"more {option} may help" if option else "biases have their share"
        yield f"The scores miss what they should add up to by {missing:.0%}: {why}."


def _joined(by_chunk: Sequence[Answer]) -> Part:
    """The chunks of one text put together again: a token's score is the mean over the chunks that see it."""
    tokens: dict[tuple[int, int], tuple[str, tuple[int, int], list[float]]] = {}
    for answer in by_chunk:
        (part,) = answer.parts.values()
        assert answer.encoded.chunk is not None
        assert isinstance(part.layout, WordPieces)
        rows = zip(answer.encoded.chunk.places, part.layout.tokens, part.layout.offsets, part.scores, strict=True)
        for place, token, offset, score in rows:
            tokens.setdefault(place, (token, offset, []))[2].append(float(score))
    order = sorted(tokens)
    assert by_chunk[0].encoded.chunk is not None
    joined = WordPieces(
        texts=by_chunk[0].encoded.chunk.layout.texts,
        tokens=tuple(tokens[place][0] for place in order),
        segments=tuple(segment for segment, _ in order),
        offsets=tuple(tokens[place][1] for place in order),
    )
    return Part(joined, np.array([np.mean(tokens[place][2]) for place in order], dtype=np.float32))


def _target_name(by_chunk: Sequence[Answer], task: Task) -> str:
    """What was asked about; of a number also what it is, since no probability says how sure the model is."""
    first = by_chunk[0]
    if task.answer != "value" or first.index is None:
        return first.name
    name = "value" if re.fullmatch(r"(LABEL_|label )\d+", first.name) else first.name
    return f"{name} {float(_mean_logits(by_chunk)[first.index]):.3g}"


def _probability(by_chunk: Sequence[Answer], task: Task) -> float | None:
    """What the model gives the label asked about; None for regression and scores of one's own."""
    index = by_chunk[0].index
    if index is None or task.answer == "value":
        return None
    logits = _mean_logits(by_chunk)
    is_sole = by_chunk[0].is_sole or task.answer == "labels"
    if len(logits) == 1 and not is_sole:
        return None
    return float(logits.sigmoid()[index] if is_sole else logits.softmax(dim=0)[index])


def _mean_logits(by_chunk: Sequence[Answer]) -> Tensor:
    return torch.stack([answer.logits for answer in by_chunk if answer.logits is not None]).mean(dim=0)
