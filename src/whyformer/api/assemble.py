"""Build an Explanation from the results of an example's encoded parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.api.batch_scores import BatchScores, answer_names
from whyformer.axes import StreamScores
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.grid_resampling import ScoredGrid, sum_grids
from whyformer.inputs.image_prompt import ImagePrompt
from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.inputs.modality import ForwardBatch, known_modalities
from whyformer.inputs.prompt_tokens import unknown_token_note
from whyformer.methods.registry import Method
from whyformer.models.bridges import AT_QUERIES, Bridge
from whyformer.models.loading import LoadedModel
from whyformer.models.scene_domain import domain_notes
from whyformer.models.structure import labels_of
from whyformer.models.task import Task
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.targets.scores import label_name, logits_of
from whyformer.tracing.trace import Trace

LIKELY = 5  # answers that a page shows
COARSE = 0.1  # share of the answer's score that may be missing from the sum of scores without a note


@dataclass(frozen=True)
class ExplainedAnswer:
    """The result for one encoded part of an example: the parts of its explanation, and the label explained."""

    encoded: EncodedExample
    parts: Mapping[str, Part]
    index: int | None
    name: str
    logits: Tensor | None
    is_sole: bool
    completeness: float | None = None
    remarks: tuple[str, ...] = ()


def answers(result: BatchScores, batch: Sequence[EncodedExample], task: Task) -> Iterator[ExplainedAnswer]:
    """One answer per encoded example of the batch."""
    trace, attribution, scores = result.trace, result.attribution, dict(result.scores)
    for modality in known_modalities().values():
        scores = scores if modality.pool is None else modality.pool(trace.question.model, scores)
    if not task.is_read_at_words:
        scores = _without_own_entry(scores, trace)
    target = trace.target
    logits = None if target.indices[0] is None else logits_of(trace.output, target.place).detach().float().cpu()
    for row, encoded in enumerate(batch):
        parts = {name: part for name, part in _parts(encoded, row, trace, scores) if part.layout.size}
        completeness = None if attribution.completeness is None else float(attribution.completeness[row])
        yield ExplainedAnswer(
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
    """Set the score of a read-out at a single position to 0."""
    blanked = dict(scores)
    for readout in trace.readouts:
        read = readout.weights != 0
        if readout.stream in scores:
            is_single = read.sum(dim=1, keepdim=True) == 1
            blanked[readout.stream] = scores[readout.stream].masked_fill(read & is_single, 0.0)
    return blanked


def _parts(encoded: EncodedExample, row: int, trace: Trace, scores: StreamScores) -> Iterator[tuple[str, Part]]:
    """The parts of an encoded example by name: the scores and positions of their tokens."""
    pictured, question = encoded.parts.get("image_text"), trace.question
    if pictured is not None and question.bridge is not None and encoded.chunk is not None:
        yield "text", Part(encoded.chunk.layout, scores["text"][row, list(encoded.chunk.positions)].cpu().numpy())
        yield from picture_parts(pictured, row, question.bridge, scores["image"][row].cpu().numpy())
        return
    lengths = {stream: values.shape[1] for stream, values in scores.items()}
    forward = ForwardBatch(question.model, question.inputs, trace.output, trace.target.place)
    for modality_name, modality in known_modalities().items():
        place = modality.place(question.model, question.inputs, lengths) if modality.place else None
        if place is not None and modality.lay_out is not None and modality_name in encoded.parts:
            part = modality.lay_out(encoded.parts[modality_name], row, forward, place, scores[place.stream][row].cpu())
            yield part.name, Part(part.layout, part.scores.numpy())


def picture_parts(pictured: ImagePrompt, row: int, bridge: Bridge, scores: np.ndarray) -> Iterator[tuple[str, Part]]:
    """The pictures of a prompt with the scores of their patches, one grid each."""
    placed = [one for one in bridge.pictures if one.example == row]
    boxes = [(number, box) for number, own in enumerate(pictured.boxes) for box in own]
    for number, picture in enumerate(pictured.pictures):
        width, height = picture.size
        grids = []
        for one, (_, (left, top, right, bottom)) in (
            pair for pair in zip(placed, boxes, strict=True) if pair[1][0] == number
        ):
            for view in one.seen.views:
                a, b, c, d = view.box  # in shares of the picture as seen
                across, down = right - left, bottom - top
                box = (left + a * across, top + b * down, left + c * across, top + d * down)
                values = scores[one.start + view.positions.numpy()].reshape(view.rows, view.columns)
                grids.append(ScoredGrid(values, (box[0] * width, box[1] * height, box[2] * width, box[3] * height)))
        grid = sum_grids(grids)
        rows, columns = grid.scores.shape
        layout = Patches(picture, rows, columns, grid.box)
        name = "image" if len(pictured.pictures) == 1 else f"image {number + 1}"
        yield name, Part(layout, grid.scores.flatten())


def explanation_of(
    by_chunk: Sequence[ExplainedAnswer], loaded_model: LoadedModel, method: Method, options: Mapping[str, Any]
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
        answers=_likely_answers(by_chunk, loaded_model),
    )


def _notes(
    by_chunk: Sequence[ExplainedAnswer], parts: Mapping[str, Part], method: Method, loaded_model: LoadedModel
) -> Iterator[str]:
    if len(by_chunk) > 1 and loaded_model.task.answer != "embedding":  # its two texts are read separately
        yield (
            f"The text is longer than the model's limit: it was explained in {len(by_chunk)} overlapping chunks, with "
            "scores averaged over the chunks that contain a token, and the answer by the mean logits."
        )
    chunk = by_chunk[0].encoded.chunk
    if chunk is not None and chunk.truncated_to is not None:
        yield f"The text is longer than the model's limit: only its {chunk.truncated_to} was explained, as requested."
    yield from unknown_token_note(loaded_model.tokenizer, _read_tokens(by_chunk))
    yield from by_chunk[0].encoded.notes
    yield from filter(None, by_chunk[0].remarks)
    yield from coarseness((part.completeness for part in by_chunk), method)
    for part in parts.values():
        if isinstance(part.layout, Patches):
            yield from domain_notes(loaded_model.name, part.layout.image)
    for name, part in parts.items():
        is_said = AT_QUERIES in by_chunk[0].remarks and isinstance(part.layout, Patches)
        if not np.any(part.scores) and not is_said:
            yield f"{method.name} found nothing{f' in the {name}' if len(parts) > 1 else ''}: every score is zero."


def _read_tokens(by_chunk: Sequence[ExplainedAnswer]) -> list[tuple[int, str]]:
    """The distinct word pieces of a text, by id and characters."""
    tokens: dict[tuple[int, int], tuple[int, str]] = {}
    for chunk in (answer.encoded.chunk for answer in by_chunk):
        if chunk is not None:
            ids, layout = chunk.encoding["input_ids"], chunk.layout
            rows = zip(chunk.places, chunk.positions, layout.segments, layout.offsets, strict=True)
            for place, position, segment, (start, end) in rows:
                tokens[place] = ids[position], layout.texts[segment][start:end]
    return list(tokens.values())


def coarseness(incompleteness: Iterable[float | None], method: Method) -> Iterator[str]:
    """Note scores that are far from their expected sum."""
    missing = max((share for share in incompleteness if share is not None), default=0.0)
    if missing > COARSE:
        option = next((name for name in ("steps", "samples") if name in method.options), None)
        why = f"more {option} may help" if option else "biases account for the rest"
        yield f"The scores miss their expected sum by {missing:.0%}: {why}."


def _joined(by_chunk: Sequence[ExplainedAnswer]) -> Part:
    """Join the chunks of a text: a token's score is the mean over the chunks that contain it."""
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


def _target_name(by_chunk: Sequence[ExplainedAnswer], task: Task) -> str:
    """Name of the target; for regression also its value, since there is no probability."""
    first = by_chunk[0]
    if task.answer != "value" or first.index is None:
        return first.name
    name = "value" if re.fullmatch(r"(LABEL_|label )\d+", first.name) else first.name
    return f"{name} {float(_mean_logits(by_chunk)[first.index]):.3g}"


def _probability(by_chunk: Sequence[ExplainedAnswer], task: Task) -> float | None:
    """Probability of the explained label; None for regression and for user-defined scores."""
    index = by_chunk[0].index
    if index is None or task.answer == "value":
        return None
    logits, is_sole = _mean_logits(by_chunk), judges_each(by_chunk[0], task)
    if len(logits) == 1 and not is_sole:
        return None
    return float(probabilities_of(logits, is_sole=is_sole)[index])


def _likely_answers(by_chunk: Sequence[ExplainedAnswer], loaded_model: LoadedModel) -> dict[str, float]:
    """The likeliest answers by name, with their probabilities; the explained one is among them."""
    if _probability(by_chunk, loaded_model.task) is None or by_chunk[0].index is None:
        return {}
    chances = probabilities_of(_mean_logits(by_chunk), is_sole=judges_each(by_chunk[0], loaded_model.task))
    names = answer_names(loaded_model) or labels_of(loaded_model.model)
    likely = likely_indices(by_chunk, loaded_model.task)
    return {label_name(index, names): float(chances[index]) for index in likely}


def likely_indices(by_chunk: Sequence[ExplainedAnswer], task: Task) -> list[int]:
    """The likeliest answers, most likely first, with the explained one among them."""
    chances, index = probabilities_of(_mean_logits(by_chunk), is_sole=judges_each(by_chunk[0], task)), by_chunk[0].index
    likely: list[int] = chances.topk(min(LIKELY, len(chances))).indices.tolist()
    return likely if index is None or index in likely else [*likely[:-1], index]


def judges_each(answer: ExplainedAnswer, task: Task) -> bool:
    """Whether the model judges each label by itself."""
    return answer.is_sole or task.answer == "labels"


def probabilities_of(logits: Tensor, *, is_sole: bool) -> Tensor:
    """Probabilities along the last axis."""
    return logits.sigmoid() if is_sole else logits.softmax(dim=-1)


def _mean_logits(by_chunk: Sequence[ExplainedAnswer]) -> Tensor:
    return torch.stack([answer.logits for answer in by_chunk if answer.logits is not None]).mean(dim=0)
