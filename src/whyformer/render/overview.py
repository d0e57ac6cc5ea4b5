"""A page of examples: the finding of each first, all methods folded below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyformer.render.html import CELL_SIDE, render_page
from whyformer.render.text_spans import readable
from whyformer.render.view import ExplanationView, explanation_view

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation

FOLDED_SIDE = 160


@dataclass(frozen=True)
class Card:
    """An example: its question, its explanation, those by other methods, and the page where it can be tried."""

    question: str
    explanation: Explanation
    others: Mapping[str, Explanation]
    link: str = ""


@dataclass(frozen=True)
class CardView:
    """A card for the template."""

    question: str
    view: ExplanationView
    others: tuple[tuple[str, ExplanationView], ...]
    link: str


def overview_page(title: str, about: str, cards: Sequence[Card], leading: int, links: Mapping[str, str]) -> str:
    """Render examples as one page: the first few open, the rest folded, and links to other pages by their titles."""
    shown = [
        CardView(
            readable(card.question),
            explanation_view(card.explanation, CELL_SIDE),
            tuple((readable(name), explanation_view(one, FOLDED_SIDE)) for name, one in card.others.items()),
            card.link,
        )
        for card in cards
    ]
    views = [view for card in shown for view in (card.view, *(other for _, other in card.others))]
    context = {"title": readable(title), "about": about, "first": shown[:leading], "rest": shown[leading:]}
    return render_page("overview.html.j2", views, links=dict(links), explanations=[], grid=None, **context)
