"""Word pieces of a text: how they are drawn, ranked and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from rich.text import Text

from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.words import tokens_by_word
from whyformer.render import canvas
from whyformer.render.canvas import Chip
from whyformer.render.cells import range_line, style
from whyformer.render.colour import Scale, ink, rgb
from whyformer.render.layout_kinds import LayoutKind, Space
from whyformer.render.shades import token_shade
from whyformer.render.text_spans import ScoredSpan, TextUnits, invisible_tokens, number, one_line, part_scale, spans
from whyformer.render.view import PartView, SpanView, legend_view

if TYPE_CHECKING:
    from whyformer.results.part import Part, Word

MOST_CHARACTERS, MOST_WORDS = 2400, 10
LONG_TEXT = 40  # words; longer texts get word positions
# Fainter backgrounds are meaningless, and look like smudges on a light terminal.
LEAST_SHOWN = 0.08
TAB_STOPS = 12  # words of a text that the Tab key reaches, the strongest


def _figure(part: Part, space: Space) -> Image.Image:
    """Draw each text as a paragraph, with words on the colours of their scores."""
    assert isinstance(part.layout, WordPieces)
    scale = part_scale(part, space.units)
    paragraphs = [
        canvas.paragraph(
            _chips(scale, spans(part, segment, space.units)), space.width, space.font_size, most_lines=space.most_lines
        )
        for segment in range(len(part.layout.texts))
    ]
    return canvas.on_sheet(canvas.stack(paragraphs, gap=space.font_size), width=space.width)


def _chips(scale: Scale, text: Sequence[ScoredSpan]) -> list[Chip]:
    return canvas.chips(
        (span.text, None if span.score is None else rgb(scale.colours(scale.strength(np.array(span.score)), "light")))
        for span in text
    )


def _lines(part: Part, width: int) -> list[str]:
    """The words with the highest and, if negative, the lowest scores, with positions in long texts.

    Positions count from 1 within each text.
    """
    words = part.words()
    counts = Counter(word.segment for word in words)
    places = [place for segment in sorted(counts) for place in range(1, counts[segment] + 1)]
    ranking = sorted(zip(words, places, strict=True), key=lambda item: -item[0].score)
    lines = [f"{number(word.score):>10}  {one_line(word.text)}{_place(word, place, counts)}" for word, place in ranking]
    if not part_scale(part).is_diverging:
        return lines[:MOST_WORDS]
    rising = sum(word.score >= 0 for word in words)
    against = lines[rising:][: -MOST_WORDS - 1 : -1]
    return [*lines[:rising][:MOST_WORDS], *["   against"] * bool(against), *against]


def _place(word: Word, place: int, counts: Mapping[int, int]) -> str:
    """The position of a word in a long text: `  (word 212 of 530)`."""
    if sum(counts.values()) <= LONG_TEXT:
        return ""
    text = f" of text {word.segment + 1}" if len(counts) > 1 else f" of {counts[word.segment]}"
    return f"  (word {place}{text})"


def _coloured(part: Part, width: int, units: TextUnits) -> list[Text]:
    """The texts on the colours of their scores, and the strongest words of long ones."""
    assert isinstance(part.layout, WordPieces)
    texts = [_coloured_text(part, segment, units) for segment in range(len(part.layout.texts))]
    is_cut = any(len(text) > MOST_CHARACTERS for text in part.layout.texts)
    return [*texts, *(map(Text, _lines(part, width)) if is_cut else ()), range_line(part, units)]


def _coloured_text(part: Part, segment: int, units: TextUnits) -> Text:
    """The text, or the neighbourhood of the strongest word of a long one."""
    scale, text, strongest, peak = part_scale(part, units), Text(), 0, 0.0
    for span in spans(part, segment, units):
        score = span.score or 0.0
        if abs(score) > peak:
            strongest, peak = len(text), abs(score)
        background = rgb(scale.colours(scale.strength(np.array(score)), "dark"))
        # Rich would expand tabs to its own width.
        is_strong = abs(score) >= LEAST_SHOWN * scale.high > 0
        text.append(span.text.replace("\t", " "), style(ink(background), background) if is_strong else None)
    if len(text) <= MOST_CHARACTERS:
        return text
    start = min(max(0, strongest - MOST_CHARACTERS // 2), len(text) - MOST_CHARACTERS)
    end = start + MOST_CHARACTERS
    return Text.assemble("… " * (start > 0), text[start:end], " …" * (end < len(text)))


def _view(part: Part, side: int, units: TextUnits) -> PartView:
    """The texts in spans, with tooltips."""
    assert isinstance(part.layout, WordPieces)
    scale = part_scale(part, units)
    texts = [spans(part, segment, units) for segment in range(len(part.layout.texts))]
    least = _least_strong([span.score for text in texts for span in text if span.score is not None])
    invisible = [ScoredSpan(token.name, (token,)) for token in invisible_tokens(part) if token.score]
    return PartView(
        legend_view(part, "page", units),
        texts=tuple(tuple(_span_view(span, scale, least) for span in text) for text in texts),
        invisible=tuple(_span_view(span, scale, least) for span in invisible),
    )


def _least_strong(scores: list[float]) -> float:
    """The size of the score of the last word that the Tab key reaches."""
    return sorted(map(abs, scores), reverse=True)[:TAB_STOPS][-1] if scores else 0.0


def _span_view(span: ScoredSpan, scale: Scale, least: float) -> SpanView:
    title = " · ".join(f"{token.name}  {number(token.score)}" for token in span.tokens)
    if span.score is None:
        return SpanView(span.text, "", title)
    return SpanView(span.text, token_shade(span.score, scale), title, abs(span.score) >= least > 0)


def _to_fields(layout: WordPieces) -> dict[str, Any]:
    pairs = [[int(start), int(end)] for start, end in layout.offsets]
    return {"texts": list(layout.texts), "segments": list(map(int, layout.segments)), "offsets": pairs}


def _from_fields(field: Callable[..., Any]) -> WordPieces:
    return WordPieces(
        texts=tuple(field("texts", list[str])),
        tokens=tuple(field("tokens", list[str])),
        segments=tuple(field("segments", list[int])),
        offsets=tuple(field("offsets", list[tuple[int, int]])),
    )


def _words(part: Part) -> Iterator[tuple[str, Sequence[int]]]:
    layout = part.layout
    assert isinstance(layout, WordPieces)
    for (segment, start, end), tokens in tokens_by_word(layout).items():
        yield layout.texts[segment][start:end], tokens


def _places(layout: WordPieces) -> Iterator[dict[str, Any]]:
    for segment, (start, end) in zip(layout.segments, layout.offsets, strict=True):
        yield {"segment": segment, "start": start, "end": end}


WORD_PIECE_KIND = LayoutKind(
    name="word pieces",
    fields=("texts", "segments", "offsets", "pieces"),
    units=("word", "token"),
    to_fields=_to_fields,
    from_fields=_from_fields,
    places=_places,
    figure=_figure,
    lines=_lines,
    coloured=_coloured,
    view=_view,
    groups=_words,
    noun="text",
    unit=None,
    whole=None,
    ground="page",
    is_narrow=True,
)
