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


class Vocabulary(Mapping[int, str]):
    """The text of each token of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getitem__(self, index: int) -> str:
        return str(self._tokenizer.decode([index]))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._tokenizer)


def pieces_of(subject: Loaded, examples: Iterable[Any], *, truncate: bool = False) -> list[Piece]:
    """One piece per example, or several where a text is longer than a classifier takes."""
    if subject.processor is None:
        raise WhyformerError(
            f"{subject.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )
    return [
        piece
        for number, example in enumerate(examples)
        for piece in _pieces_of_one(number, example, subject, truncate=truncate)
    ]


def _pieces_of_one(number: int, example: Any, subject: Loaded, *, truncate: bool) -> Iterator[Piece]:
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
        yield Piece(number, chunk=whole_text(example, subject, truncate=truncate))
    else:
        limit = length_limit(subject.model, subject.tokenizer)
        for chunk in chunks_of(text_of(example), subject.tokenizer, limit, truncate=truncate):
            yield Piece(number, chunk=chunk)


def picture_of(example: Any, subject: Loaded) -> Picture:
    """A picture as the model is shown it."""
    image = image_of(example)
    return Picture(image, covered_box(subject.image_processor, image.size))


def whole_text(example: Any, subject: Loaded, *, truncate: bool) -> Chunk:
    """A text that must fit: what is asked, compared or continued cannot be read in parts."""
    limit = length_limit(subject.model, subject.tokenizer)
    chunks = chunks_of(text_of(example), subject.tokenizer, limit, truncate=truncate)
    if len(chunks) > 1:
        raise WhyformerError(f"The text has more than the {limit} tokens that {subject.name} takes: shorten it.")
    return chunks[0]


def written_of(ids: list[int], subject: Loaded) -> Chunk:
    """What a decoder has written so far, after the token that it starts from."""
    start = getattr(subject.model.config, "decoder_start_token_id", None)
    if start is None:
        raise WhyformerError(f"{subject.name} does not say what its decoder starts from: set decoder_start_token_id.")
    text, tokens, offsets = spelt(ids, subject.tokenizer)
    layout = WordPieces((text,), tokens, (0,) * len(ids), offsets)
    encoding: dict[str, list[int]] = {"input_ids": [start, *ids], "attention_mask": [1] * (len(ids) + 1)}
    return Chunk(encoding, tuple(range(1, len(ids) + 1)), tuple((0, n) for n in range(len(ids))), layout)


def spelt(ids: list[int], tokenizer: Any) -> tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The text of these tokens, each token, and the characters it stands for.

    Tokens that are bytes of one character all stand for it: what they decode to changes until the last of them.
    """
    begun = [tokenizer.decode(ids[:count]) for count in range(len(ids) + 1)]
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
