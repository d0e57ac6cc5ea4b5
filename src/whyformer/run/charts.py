"""Curves as pictures: PNG and SVG, the same bytes for the same results."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from whyformer.evaluate.priors import PRIORS
from whyformer.extras import extra
from whyformer.run.shard import CONTROL

CONTROLS = (CONTROL, *PRIORS)
STYLE = {
    "svg.hashsalt": "whyformer",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 144,
}
AXES = {"F1 of the top words": "words picked", "rank correlation by stages forgotten": "stages forgotten"}


def chart(measure: str, curves: Mapping[str, Mapping[str, Any]]) -> Any:
    """A line with its interval for each method; the controls are grey."""
    matplotlib = extra("matplotlib")
    figure_class = extra("matplotlib.figure").Figure
    with matplotlib.rc_context(STYLE):
        figure = figure_class(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        colours = matplotlib.colormaps["tab20"].colors
        colours = (*colours[::2], *colours[1::2])
        greys = dict(zip(CONTROLS, (("0.35", ":"), ("0.55", "--"), ("0.7", "-.")), strict=True))
        for number, (method, curve) in enumerate(curves.items()):
            colour, dashes = greys.get(method, (colours[number % len(colours)], "-"))
            axes.plot(curve["at"], curve["mean"], dashes, color=colour, label=method, linewidth=1.4)
            axes.fill_between(curve["at"], curve["low"], curve["high"], color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel(AXES.get(measure, "block" if "block" in measure else "share gone"))
        axes.set_ylabel(measure)
        if "error" in measure:
            axes.set_yscale("log")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def drawn(figure: Any, kind: str) -> bytes:
    """The bytes of a .png or .svg file."""
    buffer = io.BytesIO()
    with extra("matplotlib").rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()
