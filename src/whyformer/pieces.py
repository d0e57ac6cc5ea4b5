"""Examples as people give them, made into the pieces that a model takes: a picture, a text, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.examples import image_of, regions_of, text_of, two_of
from whyformer.explanation import WordPieces
from whyformer.inputs import Chunk, Picture, Piece, chunks_of, covered_box, length_limit
from whyformer.loading import Loaded

LEAST_TEXT = 8  # tokens of a text, with its special ones, that there must be room for


class Vocabulary(Mapping[int, str]):
    """The text of each token of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getitem__(self, index: int) -> str:
        text = str(self._tokenizer.decode([index]))
        # By itself, a token of SentencePiece is decoded without the space that it begins with.
        begins_with_space = str(self._tokenizer.convert_ids_to_tokens(index)).startswith("▁")
        return f" {text}" if begins_with_space and not text.startswith(" ") else text

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._tokenizer)


def pieces_of(subject: Loaded, examples: Iterable[Any], *, truncate: bool = False, room: int = 0) -> list[Piece]:
    """One piece per example, or several where a text is longer than a classifier takes.

    `room` is for how many tokens a model that goes on from its text is to leave room after it.
    """
    if subject.processor is None:
        raise WhyformerError(
            f"{subject.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )
    return [
        piece
        for number, example in enumerate(examples)
        for piece in _pieces_of_one(number, example, subject, truncate=truncate, room=room)
    ]


def _pieces_of_one(number: int, example: Any, subject: Loaded, *, truncate: bool, room: int) -> Iterator[Piece]:
    if subject.sees_regions:
        regions, text = two_of(example, "regions and a text: (whyformer.Regions(…), 'what colour is the circle?')")
        yield Piece(number, regions=regions_of(regions), chunk=whole_text(text, subject, truncate=truncate))
    elif subject.sees_pictures and subject.tokenizer is not None:
        picture, text = two_of(example, "a picture and a text: ('street.jpg', 'a red bus')")
        yield Piece(number, picture_of(picture, subject), chunk=whole_text(text, subject, truncate=truncate))
    elif subject.sees_pictures:
        yield Piece(number, picture_of(example, subject))
    elif subject.has_decoder:
        source, so_far = two_of(example, "a text, and what was written so far") if _is_pair(example) else (example, "")
        chunk = whole_text(source, subject, truncate=truncate)
        yield Piece(number, chunk=chunk, written=written_of(_ids(so_far, subject), subject))
    elif subject.writes:
        yield Piece(number, chunk=whole_text(example, subject, truncate=truncate, room=room))
    else:
        limit = length_limit(subject.model, subject.tokenizer)
        for chunk in chunks_of(text_of(example), subject.tokenizer, limit, truncate=truncate):
            yield Piece(number, chunk=chunk)


def picture_of(example: Any, subject: Loaded) -> Picture:
    """A picture as the model is shown it."""
    image = image_of(example)
    return Picture(image, covered_box(subject.image_processor, image.size))


def whole_text(example: Any, subject: Loaded, *, truncate: bool, room: int = 0) -> Chunk:
    """A text that must fit: what is asked, compared or continued cannot be read in parts."""
    limit = length_limit(subject.model, subject.tokenizer)
    left = None if limit is None else limit - room
    if room and left is not None and left < LEAST_TEXT:
        raise WhyformerError(
            f"tokens={room + 1}: {subject.name} takes {limit} with the text before them. Ask for fewer."
        )
    chunks = chunks_of(text_of(example), subject.tokenizer, left, truncate=truncate)
    if len(chunks) > 1:
        others = f", {room} of them for what it is to write" if room else ""
        way_out = "shorten it, or ask for fewer" if room else "shorten it"
        raise WhyformerError(
            f"The text is too long for the {limit} tokens that {subject.name} takes{others}: {way_out}."
        )
    return chunks[0]


def written_of(ids: list[int], subject: Loaded) -> Chunk:
    """What a decoder has written so far, after the token that it starts from."""
    begun = _beginning(subject)
    text, tokens, offsets = spelt(ids, subject.tokenizer)
    layout = WordPieces((text,), tokens, (0,) * len(ids), offsets)
    whole = [*begun, *ids]
    positions = tuple(range(len(begun), len(whole)))
    encoding: dict[str, list[int]] = {"input_ids": whole, "attention_mask": [1] * len(whole)}
    return Chunk(encoding, positions, tuple((0, n) for n in range(len(ids))), layout)


def _beginning(subject: Loaded) -> list[int]:
    """The tokens that a decoder starts from and does not choose: its start and, for some, a language."""
    settings = [getattr(subject.model, "generation_config", None), subject.model.config]
    start, forced = (
        next((found for part in settings if (found := getattr(part, name, None)) is not None), None)
        for name in ("decoder_start_token_id", "forced_bos_token_id")
    )
    if start is None:
        raise WhyformerError(f"{subject.name} does not say what its decoder starts from: set decoder_start_token_id.")
    return [start] if forced is None else [start, forced]


def spelt(
    ids: list[int], tokenizer: Any, before: list[int] | None = None
) -> tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The text of these tokens after those before them, each token, and the characters it stands for.

    Tokens that are bytes of one character all stand for it: what they decode to changes until the last of them.
    """
    before = before or []
    start = len(tokenizer.decode(before))
    begun = [tokenizer.decode([*before, *ids[:count]])[start:] for count in range(len(ids) + 1)]
    text = begun[-1]
    settled = [sum(takewhile(bool, map(str.__eq__, part, text))) for part in begun]
    ends = list(settled)
    for count in reversed(range(len(ids))):
        if settled[count] < len(begun[count]):
            ends[count] = ends[count + 1]
    return text, tuple(tokenizer.convert_ids_to_tokens(ids)), tuple(zip(settled[:-1], ends[1:], strict=True))


def _ids(text: str, subject: Loaded) -> list[int]:
    return list(subject.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _is_pair(example: Any) -> bool:
    return isinstance(example, (tuple, list))
