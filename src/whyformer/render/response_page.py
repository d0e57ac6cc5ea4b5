"""Render responses as pages, whose content security policy allows only their own script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from whyformer.render.continuation_view import continuation_view
from whyformer.render.html import TEMPLATES, page_script, script_hash
from whyformer.render.response_view import response_view
from whyformer.render.shades import declarations
from whyformer.render.source_view import RANKED, WRITTEN, SourcesView

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.response import Response


def response_page(response: Response) -> str:
    """Render a response as a page."""
    return sources_page(response_view(response))


def response_fragment(response: Response) -> str:
    """Render a response for embedding in a page such as a notebook, with scoped styles."""
    return sources_fragment(response_view(response))


def continuation_page(continuation: Continuation) -> str:
    """Render a continuation as a page."""
    return sources_page(continuation_view(continuation))


def continuation_fragment(continuation: Continuation) -> str:
    """Render a continuation for embedding in a page, with scoped styles."""
    return sources_fragment(continuation_view(continuation))


def sources_page(view: SourcesView) -> str:
    """Render a page with a response on the left and its prompt on the right."""
    script = page_script("page_state.js", "sources.js")
    context: dict[str, Any] = {"script_hash": script_hash(script), "what_if": None, "grid": None, "others": []}
    return _render("sources.html.j2", view, script, title=view.headline, **context)


def sources_fragment(view: SourcesView) -> str:
    """Render a response and its prompt for embedding in a page."""
    return _render("sources_fragment.html.j2", view, TEMPLATES.get_template("sources.js").render())


def _render(template: str, view: SourcesView, script: str, **context: Any) -> str:
    shades = {name: declarations(name) for name in view.shades}
    context |= {"view": view, "shades": shades, "script": Markup(script), "most": RANKED, "written": WRITTEN}
    return TEMPLATES.get_template(template).render(context)
