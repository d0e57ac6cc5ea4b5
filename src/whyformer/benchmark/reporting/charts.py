"""Draw curves as PNG and SVG, with identical bytes for identical results."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from whyformer.benchmark.shard import CONTROL
from whyformer.extras import extra
from whyformer.metrics.priors import PRIORS

CONTROLS = (CONTROL, *PRIORS)
FEW = 6  # more intervals than this overlap
BEST = 3  # of many methods, the number drawn with intervals
DASHES = (
    "--",
    "-.",
    ":",
)  # not a divisor of ten colours: no two of 30 methods look the same
CHART_STYLE = {
    "svg.hashsalt": "whyformer",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 144,
}
AXES = {"F1 of the top words": "words picked", "rank correlation by stages forgotten": "stages forgotten"}


def chart(measure: str, curves: Mapping[str, Mapping[str, Any]]) -> Any:
    """Draw a line per method, best first, with intervals for `banded_methods`; controls are grey."""
    matplotlib = extra("matplotlib")
    figure_class = extra("matplotlib.figure").Figure
    with matplotlib.rc_context(CHART_STYLE):
        figure = figure_class(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        looks, bands = _looks(curves), banded_methods(curves)
        for place, (method, curve) in enumerate(curves.items()):
            colour, dashes = looks[method]
            width = 1.8 if method in bands and len(curves) > FEW else 1.2
            # The best is drawn last, over the others; the legend keeps the order of the curves.
            over = 2 + (len(curves) - place) / len(curves)
            axes.plot(curve["at"], curve["mean"], dashes, color=colour, label=method, linewidth=width, zorder=over)
            if method in bands:
                axes.fill_between(curve["at"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)
        axes.set_xlabel(AXES.get(measure, "block" if "block" in measure else "share gone"))
        axes.set_ylabel(measure)
        if "error" in measure:
            axes.set_yscale("log")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def banded_methods(methods: Collection[str]) -> list[str]:
    """The methods drawn with an interval: all, or of many only the best and the random control."""
    if len(methods) <= FEW:
        return list(methods)
    best = [method for method in methods if method not in CONTROLS][:BEST]
    return [*best, *({CONTROL} & set(methods))]


def _looks(methods: Iterable[str]) -> dict[str, tuple[Any, str]]:
    """A colour and a dash per method: the best are solid, the others differ from their neighbours in both."""
    colours = [*extra("matplotlib").colormaps["tab10"].colors]
    colours[7] = "black"  # tab10 has a grey there, reserved for controls
    named = [method for method in methods if method not in CONTROLS]
    grey = dict(zip(CONTROLS, (("0.35", ":"), ("0.55", "--"), ("0.7", "-.")), strict=True))
    few = len(named) <= FEW
    return grey | {
        method: (colours[place % len(colours)], "-" if few or place < BEST else DASHES[place % len(DASHES)])
        for place, method in enumerate(named)
    }


def chart_bytes(figure: Any, kind: str) -> bytes:
    """The bytes of a .png or .svg file."""
    buffer = io.BytesIO()
    with extra("matplotlib").rc_context(CHART_STYLE):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()
