"""Targets of token classification: a word, or the words of an entity, and a tag."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.targets.head_target import HeadTarget, Term, named, output_of, output_tensor, sides, sum_of
from whyformer.targets.scores import Contrast, PlacedLabel, label_index, label_name

OUTSIDE = "O"  # the tag of a word outside of entities
CHUNK_NOTE = "The text is longer than the model's limit: chunk {} of {}, which contains the target, is explained."


@dataclass(frozen=True)
class TextWord:
    """A word of the tokenizer: its character range, and its first token in each chunk that contains it.

    `margins` are the distances of that token from the nearer end of the chunk.
    """

    start: int
    end: int
    positions: dict[int, int]
    margins: dict[int, int]


@dataclass(frozen=True)
class Tagging:
    """A text with predicted tags for its words; a long one in chunks."""

    loaded_model: LoadedModel
    encoded: Sequence[EncodedExample]

    @cached_property
    def labels(self) -> dict[int, str]:
        return labels_of(self.loaded_model.model)

    @cached_property
    def text(self) -> str:
        chunk = self.encoded[0].chunk
        assert chunk is not None
        return chunk.layout.texts[0]

    @cached_property
    def logits(self) -> list[Tensor]:
        """The logits [token, tag] of each chunk."""
        outputs = (output_of(self.loaded_model, one) for one in self.encoded)
        return [output_tensor(output, "logits", self.loaded_model) for output in outputs]

    @cached_property
    def words(self) -> list[TextWord]:
        """The words of the text, in order."""
        words: dict[int, TextWord] = {}
        for number, one in enumerate(self.encoded):
            assert one.chunk is not None
            layout, last = one.chunk.layout, len(one.chunk.positions) - 1
            rows = zip(one.chunk.words, one.chunk.positions, layout.segments, layout.offsets, strict=True)
            for index, (word, position, segment, (start, end)) in enumerate(rows):
                characters = self.text[start:end] if segment == 0 else ""
                if not characters.strip():
                    continue
                start, end = end - len(characters.lstrip()), start + len(characters.rstrip())
                known = words.setdefault(word, TextWord(start, end, {}, {}))
                known.positions.setdefault(number, position)
                known.margins.setdefault(number, min(index, last - index))
                words[word] = replace(known, start=min(start, known.start), end=max(end, known.end))
        return [words[word] for word in sorted(words)]

    def chunk_of(self, place: range) -> int:
        """The chunk that contains all words of a place, as far from its ends as possible."""
        words = [self.words[word] for word in place]
        margins = {
            chunk: min(word.margins[chunk] for word in words)
            for chunk in range(len(self.encoded))
            if all(chunk in word.positions for word in words)
        }
        if not margins:
            raise WhyformerError(f"{self.characters(place)!r:.60} does not fit the model at once: choose fewer words.")
        return max(margins, key=lambda chunk: margins[chunk])

    def rows(self, place: range) -> tuple[int, list[int], Tensor]:
        """The chunk of a place, the positions of its words' first tokens, and their probabilities [word, tag]."""
        chunk = self.chunk_of(place)
        positions = [self.words[word].positions[chunk] for word in place]
        return chunk, positions, self.logits[chunk][positions].softmax(dim=-1)

    @cached_property
    def probabilities(self) -> Tensor:
        """Tag probabilities of each word: [word, tag]."""
        return torch.cat([self.rows(range(word, word + 1))[2] for word in range(len(self.words))])

    def characters(self, place: range) -> str:
        return self.text[self.words[place[0]].start : self.words[place[-1]].end]

    def is_outside(self, tag: int) -> bool:
        return label_name(tag, self.labels).upper() == OUTSIDE

    def entities(self) -> Iterator[range]:
        """Group consecutive words with tags of one kind other than O, as transformers' pipeline does."""
        start, kind = 0, ""
        tags = [label_name(tag, self.labels) for tag in self.probabilities.argmax(dim=1).tolist()]
        for word, tag in enumerate([*tags, OUTSIDE]):
            goes_on = kind and entity_kind(tag) == kind and not tag.startswith("B-")
            if kind and not goes_on:
                yield range(start, word)
            if not goes_on:
                start, kind = word, "" if tag.upper() == OUTSIDE else entity_kind(tag)


def entity_kind(tag: str) -> str:
    """The entity kind of a tag: LOC for B-LOC."""
    return re.sub(r"^[BIES]-", "", tag)


def tagging_of(loaded_model: LoadedModel, example: Any, number: int = 0, *, truncate: bool) -> Tagging:
    """Tag the text of an example."""
    encoded = [replace(one, example=number) for one in encode(loaded_model, [example], truncate=truncate)]
    return Tagging(loaded_model, encoded)


def tag_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for a tag at a place, or a tag where it is most likely; "predicted" is the most confident entity."""
    tagging = tagging_of(loaded_model, example, number, truncate=truncate)
    notes: tuple[str, ...] = ()
    if isinstance(target, PlacedLabel):
        place, label = _place(target.place, tagging), target.label
    elif target == "predicted":
        place, label, notes = _surest(tagging)
    else:
        first, _ = next(sides(target))
        place, label = _likeliest(first, tagging), target
    return [_target(place, label, tagging, notes)]


def entity_targets(loaded_model: LoadedModel, example: Any, *, truncate: bool) -> list[PlacedLabel]:
    """Every entity of a text."""
    tagging = tagging_of(loaded_model, example, truncate=truncate)
    return [PlacedLabel(place) for place in tagging.entities()]


def _target(place: range, label: Any, tagging: Tagging, notes: tuple[str, ...]) -> HeadTarget:
    chunk, positions, probabilities = tagging.rows(place)
    terms, names, shares = [], [], []
    for side, sign in sides(label):
        tags = _tags(side, place, probabilities, tagging)
        terms += [Term("logits", at, sign / len(tags)) for at in zip(positions, tags, strict=True)]
        names.append(_tag_name(tags, tagging))
        shares.append(float(probabilities[range(len(tags)), tags].mean()))
    if len(tagging.encoded) > 1:
        notes = (*notes, CHUNK_NOTE.format(chunk + 1, len(tagging.encoded)))
    name = f"{tagging.characters(place)} → {named(names)}"
    is_contrast = isinstance(label, Contrast)
    return HeadTarget(tagging.encoded[chunk], sum_of(terms), name, None if is_contrast else shares[0], notes)


def _surest(tagging: Tagging) -> tuple[range, Any, tuple[str, ...]]:
    """The most likely entity, or else the most likely entity tag."""
    entities = list(tagging.entities())
    if entities:
        return max(entities, key=lambda place: float(_best(tagging, place).mean())), "predicted", ()
    shares = tagging.probabilities.clone()
    shares[:, [tag for tag in range(shares.shape[1]) if tagging.is_outside(tag)]] = -1.0
    word, tag = divmod(int(shares.argmax()), shares.shape[1])
    note = f"All words are tagged {OUTSIDE}: this is the most likely other tag."
    return range(word, word + 1), tag, (note,)


def _best(tagging: Tagging, place: range) -> Tensor:
    return tagging.rows(place)[2].amax(dim=1)


def _likeliest(label: Any, tagging: Tagging) -> range:
    """The word with the highest probability of this tag."""
    if label == "predicted":
        return _surest(tagging)[0]
    tag = _tag_index(label, 0, tagging.probabilities, tagging)
    word = int(tagging.probabilities[:, tag].argmax())
    return range(word, word + 1)


def _tags(label: Any, place: range, probabilities: Tensor, tagging: Tagging) -> list[int]:
    """The tag of each word of a place."""
    if label == "predicted":
        return [int(tag) for tag in probabilities.argmax(dim=1)]
    return [_tag_index(label, order, probabilities, tagging) for order in range(len(place))]


def _tag_index(label: Any, order: int, probabilities: Tensor, tagging: Tagging) -> int:
    """The index of a tag, or of an entity kind with B- for its first word and I- for the others."""
    labels = tagging.labels
    if isinstance(label, str):
        by_name = {name.casefold(): index for index, name in labels.items()}
        spellings = (label, f"{'I' if order else 'B'}-{label}", f"I-{label}", f"B-{label}")
        index = next((by_name[one.casefold()] for one in spellings if one.casefold() in by_name), None)
        if index is not None:
            return index
    return label_index(label, labels, probabilities.shape[1])


def _tag_name(tags: Sequence[int], tagging: Tagging) -> str:
    """The name of a single tag, or the kind of several."""
    names = [label_name(tag, tagging.labels) for tag in tags]
    if len(names) == 1:
        return names[0]
    return "/".join(dict.fromkeys(map(entity_kind, names)))


def _place(place: str | int | range, tagging: Tagging) -> range:
    """The words selected by text or index."""
    count = len(tagging.words)
    if isinstance(place, str):
        return _place_named(place, tagging)
    numbers = place if isinstance(place, range) else range(operator.index(place), operator.index(place) + 1)
    if not numbers or numbers.step != 1 or not 0 <= numbers[0] <= numbers[-1] < count:
        shown = numbers[0] if len(numbers) == 1 else numbers
        raise WhyformerError(f"No word {shown}: the text has {count}, 0 to {count - 1}.")
    return numbers


def _place_named(text: str, tagging: Tagging) -> range:
    for flags in (0, re.IGNORECASE):
        spans = [match.span() for match in re.finditer(re.escape(text.strip()), tagging.text, flags)]
        places = [place for start, end in spans if (place := _place_on(start, end, tagging))]
        if len(places) > 1:
            numbers = ", ".join(str(place[0]) for place in places)
            raise WhyformerError(
                f"{text!r} occurs {len(places)} times in the text, at words {numbers}: give one of these numbers as "
                f"the place, such as at({_shown(places[0])}, …)."
            )
        if places:
            return places[0]
    if text.isdecimal():
        return _place(int(text), tagging)
    words = list(dict.fromkeys(tagging.characters(range(n, n + 1)) for n in range(len(tagging.words))))
    raise WhyformerError(f"No word {text!r} in the text. {nearest(text, words)}")


def _place_on(start: int, end: int, tagging: Tagging) -> range | None:
    """The words in this character range, which must cover them except for punctuation; None if it cuts a word."""
    numbers = [n for n, word in enumerate(tagging.words) if word.start < end and start < word.end]
    if not numbers:
        return None
    first, last = tagging.words[numbers[0]], tagging.words[numbers[-1]]
    rest = tagging.text[first.start : start] + tagging.text[end : last.end]
    return None if any(character.isalnum() for character in rest) else range(numbers[0], numbers[-1] + 1)


def _shown(place: range) -> str:
    return str(place[0]) if len(place) == 1 else repr(place)
