"""The words of a text, and the tokens of each."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import regex

from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.sentences import CharRange

WordRange = tuple[int, int, int]  # segment, start, end

# Scripts written without spaces. Unicode's word boundaries (UAX 29) are used only within them, so that words of other
# scripts keep their punctuation and hyphens.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_HAS_UNSPACED = regex.compile(_UNSPACED)
_UNIT = regex.compile(rf"(?sw){_UNSPACED}+?(?:\b|(?!{_UNSPACED}))|(?:(?!{_UNSPACED}).)+")
_SEQUENCE = regex.compile(r"(?:[A-Z.-]|<\w+>|\[\w+\])+")  # of residues, and markers such as a mask
_PUNCTUATION = regex.compile(r"\p{P}+")
_OPENING = regex.compile(r"[\p{Ps}\p{Pi}]+")


# English words without content: the first words of an answer, rarely the answer itself.
FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by do does for from had has have he her his i if in into is it its not of on one "
    "or she so than that the their them then there these they this those to was we were what when where which who "
    "whose will with you your".split()
)


def content_words(text: str) -> set[str]:
    """The distinct words of a text in lower case, without English function words."""
    return set(re.findall(r"\w+", text.lower())) - FUNCTION_WORDS


def word_ranges(text: str) -> list[CharRange]:
    """Character ranges of the words: split at white space and, in scripts without spaces, at Unicode's boundaries."""
    spans: list[CharRange] = []
    for match in re.finditer(r"\S+", text):
        if _HAS_UNSPACED.search(match.group()):
            spans += _units(text, *match.span())
        else:
            spans.append(match.span())
    return spans


def tokens_by_word(layout: WordPieces) -> dict[WordRange, list[int]]:
    """The tokens that overlap each word, in the order of the text; words without a token are absent.

    A token that overlaps two words belongs to both.
    """
    words = [_residues(layout, segment) or word_ranges(text) for segment, text in enumerate(layout.texts)]
    starts, ends = ([[span[side] for span in spans] for spans in words] for side in (0, 1))
    tokens: dict[WordRange, list[int]] = {}
    for token, (segment, (first, last)) in enumerate(zip(layout.segments, layout.offsets, strict=True)):
        if first == last:
            continue
        for word in range(bisect_right(ends[segment], first), bisect_left(starts[segment], last)):
            tokens.setdefault((segment, *words[segment][word]), []).append(token)
    return dict(sorted(tokens.items()))


def _residues(layout: WordPieces, segment: int) -> list[CharRange]:
    """The letters of a sequence without spaces that is tokenized letter by letter, such as a protein's."""
    if not _SEQUENCE.fullmatch(layout.texts[segment]):
        return []
    spans = [span for span, own in zip(layout.offsets, layout.segments, strict=True) if own == segment]
    letters = [layout.texts[segment][start:end] for start, end in spans]
    return spans if all(len(letter) == 1 or letter.startswith(("<", "[")) for letter in letters) else []


def _units(text: str, start: int, end: int) -> Iterator[CharRange]:
    """The words between two spaces; punctuation joins the preceding word, an opening bracket the following one."""
    word: CharRange | None = None
    for match in _UNIT.finditer(text, start, end):
        is_attached = _PUNCTUATION.fullmatch(match.group()) or (word and _OPENING.fullmatch(text, *word))
        if word is not None and is_attached and not (_OPENING.fullmatch(match.group())):
            word = word[0], match.end()
        else:
            if word is not None:
                yield word
            word = match.span()
    if word is not None:
        yield word
