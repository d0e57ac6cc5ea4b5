"""Extractive question answering: answers that are a span of a passage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.read import two_of
from whyformer.inputs.words import word_ranges
from whyformer.models.loading import LoadedModel
from whyformer.targets.head_target import HeadTarget, Term, named, output_of, output_tensor, sides, sum_of
from whyformer.targets.scores import Contrast, PlacedLabel
from whyformer.targets.token_classification import CHUNK_NOTE

LONGEST_ANSWER = 15  # maximum tokens of a predicted answer, as in transformers' pipelines
PASSAGE = 1  # the segment of the passage, after that of the question


@dataclass(frozen=True)
class AnswerSpan:
    """A span of the passage in one chunk: the positions of its first and last token, its logit and probability."""

    chunk: int
    start: int
    end: int
    logit: float
    probability: float
    characters: tuple[int, int]


@dataclass(frozen=True)
class ReadPassage:
    """A chunk of a passage with its question, and the logits of where an answer starts and ends."""

    encoded: EncodedExample
    start: Tensor
    end: Tensor

    @property
    def chunk(self) -> Chunk:
        assert self.encoded.chunk is not None
        return self.encoded.chunk

    @property
    def tokens(self) -> list[tuple[int, tuple[int, int]]]:
        """The position of each token of the passage, and its characters there."""
        layout = self.chunk.layout
        rows = zip(self.chunk.positions, layout.segments, layout.offsets, strict=True)
        return [(position, offsets) for position, segment, offsets in rows if segment == PASSAGE]


def span_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for an answer in words of the passage; "predicted" is the most likely one."""
    pair = two_of(example, "a question and a passage: ('When did it land?', 'It landed in 1969.')")
    encoded = [replace(one, example=number) for one in encode(loaded_model, [pair], truncate=truncate)]
    chunks = [_read(one, loaded_model) for one in encoded]
    place = target.place if isinstance(target, PlacedLabel) else None
    label = target.label if isinstance(target, PlacedLabel) else target
    spans, notes = list[AnswerSpan](), list[str]()
    for side, _ in sides(label):
        within = spans[0].chunk if spans else None  # both spans of a contrast must be in one chunk
        span, note = _span(side, chunks, place if within is None else None, within)
        spans.append(span)
        notes += [note] * bool(note)
    if len(chunks) > 1:
        notes.append(CHUNK_NOTE.format(spans[0].chunk + 1, len(chunks)))
    passage = chunks[0].chunk.layout.texts[PASSAGE]
    names = named([repr(passage[slice(*span.characters)]) for span in spans])
    terms = [
        Term(field, (at,), sign)
        for span, (_, sign) in zip(spans, sides(label), strict=True)
        for field, at in (("start_logits", span.start), ("end_logits", span.end))
    ]
    probability = None if isinstance(label, Contrast) else spans[0].probability
    return [HeadTarget(encoded[spans[0].chunk], sum_of(terms), f"answer: {names}", probability, tuple(notes))]


def _read(encoded: EncodedExample, loaded_model: LoadedModel) -> ReadPassage:
    output = output_of(loaded_model, encoded)
    logits = [output_tensor(output, field, loaded_model) for field in ("start_logits", "end_logits")]
    return ReadPassage(encoded, *logits)


def _span(label: Any, chunks: Sequence[ReadPassage], place: Any, within: int | None) -> tuple[AnswerSpan, str]:
    """The most likely span with these words, or of all; and a note."""
    passage = chunks[0].chunk.layout.texts[PASSAGE]
    numbers = range(len(chunks)) if within is None else [within]
    if label == "predicted":
        return max((_likeliest(number, chunks[number]) for number in numbers), key=lambda span: span.logit), ""
    places = _occurrences(label, passage)
    if place is not None:
        if place not in [start for start, _ in places]:
            starts = ", ".join(str(start) for start, _ in places)
            raise WhyformerError(f"{label!r} does not start at character {place!r} of the passage, but at {starts}.")
        places = [each for each in places if each[0] == place]
    spans = [span for number in numbers for each in places if (span := _span_on(each, number, chunks[number]))]
    if not spans:
        raise WhyformerError(f"{label!r} is not in a chunk of the passage that fits the model: shorten it.")
    span = max(spans, key=lambda span: span.logit)
    note = f"{label!r} occurs {len(places)} times: the most likely one is explained, at character {span.characters[0]}."
    return span, note if len(places) > 1 else ""


def _occurrences(words: Any, passage: str) -> list[tuple[int, int]]:
    """Character ranges of these words in the passage."""
    if not isinstance(words, str) or not words.strip():
        raise WhyformerError(f"A target is words of the passage, 'predicted' or a contrast, not {words!r:.40}.")
    for flags in (0, re.IGNORECASE):
        places = [match.span() for match in re.finditer(re.escape(words.strip()), passage, flags)]
        if places:
            return places
    starts, ends = zip(*word_ranges(passage), strict=True)
    count = len(words.split())
    phrases = [passage[a:b].rstrip(".,;:!?") for a, b in zip(starts, ends[count - 1 :], strict=False)]
    raise WhyformerError(f"{words!r:.60} is not in the passage. {nearest(words, list(dict.fromkeys(phrases)))}")


def _probabilities(chunk: ReadPassage) -> tuple[Tensor, Tensor]:
    """Probabilities that the answer starts, or ends, at each position of the passage, or at the class token if none."""
    allowed = torch.zeros(len(chunk.start), dtype=torch.bool)
    allowed[[position for position, _ in chunk.tokens]] = True
    allowed[0] = allowed[0] | (0 not in chunk.chunk.positions)
    allowed = allowed.to(chunk.start.device)
    start, end = (x.masked_fill(~allowed, float("-inf")).softmax(dim=0) for x in (chunk.start, chunk.end))
    return start, end


def _span_of(number: int, chunk: ReadPassage, first: int, last: int) -> AnswerSpan:
    """Build the span from one token of the passage to another."""
    (start, (begin, _)), (end, (_, stop)) = chunk.tokens[first], chunk.tokens[last]
    starts, ends = _probabilities(chunk)
    text = chunk.chunk.layout.texts[PASSAGE][begin:stop]
    begin += len(text) - len(text.lstrip())
    logit = float(chunk.start[start] + chunk.end[end])
    return AnswerSpan(number, start, end, logit, float(starts[start] * ends[end]), (begin, stop))


def _likeliest(number: int, chunk: ReadPassage) -> AnswerSpan:
    positions = [position for position, _ in chunk.tokens]
    if not positions:
        raise WhyformerError("The passage is empty: there is nothing to find an answer in.")
    sums = chunk.start[positions][:, None] + chunk.end[positions][None, :]
    allowed = torch.ones_like(sums).triu().tril(LONGEST_ANSWER - 1).bool()
    best = int(sums.masked_fill(~allowed, float("-inf")).argmax())
    return _span_of(number, chunk, *divmod(best, len(positions)))


def _span_on(place: tuple[int, int], number: int, chunk: ReadPassage) -> AnswerSpan | None:
    """The span of the tokens in this character range; None if the chunk does not contain all of them."""
    start, end = place
    tokens = [n for n, (_, (begin, stop)) in enumerate(chunk.tokens) if begin < end and start < stop]
    if not tokens or chunk.tokens[tokens[0]][1][0] > start or chunk.tokens[tokens[-1]][1][1] < end:
        return None
    return _span_of(number, chunk, tokens[0], tokens[-1])
