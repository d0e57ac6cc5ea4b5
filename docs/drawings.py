"""Draws the figures of the concepts: python docs/drawings.py writes docs/pictures/concept-*.svg."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 640, 210
INK, FAINT, PALE, HOT, WARM = "#26262b", "#77777f", "#eceaf2", "#e8590c", "#f7b267"


def box(x: float, y: float, text: str = "", *, width: float = 64, height: float = 34, fill: str = PALE) -> str:
    """A rounded box with a word in its middle."""
    colour = "#fff" if fill == HOT else INK
    frame = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}"/>'
    return frame + words(x + width / 2, y + height / 2 + 5, text, colour=colour, anchor="middle")


def words(x: float, y: float, text: str, *, colour: str = INK, anchor: str = "start", size: int = 15) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, width: float = 2, colour: str = FAINT, end: str = "") -> str:
    marker = f' marker-end="url(#{end})"' if end else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{marker}/>'


def arrow(x1: float, y1: float, x2: float, y2: float, *, width: float = 2, colour: str = FAINT) -> str:
    return line(x1, y1, x2, y2, width=width, colour=colour, end="hot" if colour == HOT else "tip")


def curve(points: Sequence[tuple[float, float]], *, colour: str = INK) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def tip(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
    )


def score() -> list[str]:
    """Words with bars: what supports the answer, and what contradicts it."""
    bars = {"The": 4, "plot": 9, "is": 3, "slow": -30, "but": 6, "wonderful": 62}
    parts = [words(20, 30, "one number per token, for one answer: positive", colour=FAINT)]
    parts.append(line(20, 120, 450, 120, width=1))
    for place, (word, height) in enumerate(bars.items()):
        x, top = 24 + 72 * place, 120 - max(height, 0)
        colour = HOT if height > 40 else WARM if height > 0 else "#74a9cf"
        parts.append(f'<rect x="{x + 8}" y="{top}" width="36" height="{abs(height)}" fill="{colour}"/>')
        parts.append(words(x + 26, 172, word, anchor="middle"))
    return [*parts, words(470, 76, "supports it", colour=HOT), words(470, 146, "contradicts it", colour="#3a7cab")]


def readout() -> list[str]:
    """States after the last block: the answer is read at one of them."""
    parts = [box(20 + 84 * n, 120, text) for n, text in enumerate(["[CLS]", "a", "fine", "film", "[SEP]"])]
    parts += [arrow(52 + 84 * n, 114, 52 + 84 * n, 84) for n in range(5)]
    parts += [box(20 + 84 * n, 48, "state", fill=HOT if n == 0 else PALE) for n in range(5)]
    parts += [line(52, 46, 52, 26, colour=HOT), arrow(52, 26, 470, 26, colour=HOT), box(476, 9, "positive", width=84)]
    parts += [words(20, 186, "r = (1, 0, 0, 0, 0): the answer is read at one place", colour=FAINT)]
    return [*parts, words(476, 142, "all blocks", colour=FAINT)]


def stream() -> list[str]:
    """Two rows of tokens that read themselves and each other."""
    parts = [words(20, 58, "image"), words(20, 158, "text")]
    parts += [box(90 + 70 * n, 36, f"patch {n + 1}", width=62) for n in range(5)]
    parts += [box(90 + 70 * n, 136, text, width=62, fill=WARM) for n, text in enumerate("what colour is it ?".split())]
    parts += [arrow(121 + 70 * n, 134, 121 + 70 * m, 74) for n, m in ((0, 0), (1, 3), (3, 4))]
    parts += [arrow(261, 72, 331, 132), words(470, 58, "reads itself", colour=FAINT)]
    parts += [words(470, 108, "reads the other", colour=FAINT), words(470, 158, "reads itself", colour=FAINT)]
    return parts


def flow() -> list[str]:
    """The answer's row followed back through the blocks, thick where much flows."""
    x, rows = [40, 150, 260, 370], [36, 100, 164]
    parts = [words(430, 40, "the answer", colour=HOT), words(430, 104, "after block 1"), words(430, 168, "the input")]
    for (a, b), width in {(0, 0): 6, (0, 2): 5, (0, 1): 1, (0, 3): 1}.items():
        parts.append(line(x[a] + 20, rows[0] + 12, x[b] + 20, rows[1] - 12, width=width, colour=WARM))
    for (a, b), width in {(0, 0): 3, (0, 2): 2, (2, 2): 4, (2, 3): 4, (1, 1): 1}.items():
        parts.append(line(x[a] + 20, rows[1] + 12, x[b] + 20, rows[2] - 12, width=width, colour=WARM))
    fills = [[HOT, PALE, PALE, PALE], [WARM, PALE, WARM, PALE], [PALE, PALE, HOT, WARM]]
    for y, colours in zip(rows, fills, strict=True):
        parts += [box(left, y - 12, width=40, height=24, fill=fill) for left, fill in zip(x, colours, strict=True)]
    return parts


def feedback() -> list[str]:
    """Inputs on the way from nothing to the input, each asked for a gradient."""
    parts = []
    for step in range(5):
        x, shade = 24 + 92 * step, f"rgb({236 - 2 * step},{234 - 36 * step},{242 - 57 * step})"
        parts += [box(x, 40, f"{step / 4:g} · x", width=72, fill=shade), arrow(x + 36, 80, x + 36, 112)]
        parts.append(words(x + 36, 134, "∂y/∂A", anchor="middle"))
    parts += [line(24, 150, 464, 150, width=1), words(244, 180, "their mean is the feedback F", anchor="middle")]
    parts += [words(490, 62, "from empty to"), words(490, 82, "the input itself")]
    return [*parts, words(490, 134, "asked each time", colour=FAINT)]


def relevance() -> list[str]:
    """The answer's score handed back in shares that add up."""
    parts = [box(270, 16, "1.0", fill=HOT), words(350, 38, "the answer's score")]
    parts += [box(150, 88, "0.6", fill=WARM), box(390, 88, "0.4", fill=WARM)]
    parts += [arrow(290, 52, 190, 86), arrow(314, 52, 414, 86)]
    for x, text, source in ((60, "0.5", 174), (200, "0.1", 190), (330, "0.1", 410), (450, "0.3", 430)):
        parts += [box(x, 160, text, fill=WARM if text != "0.1" else PALE), arrow(source, 124, x + 32, 158)]
    return [*parts, words(530, 182, "the inputs"), words(530, 110, "always 1.0", colour=FAINT)]


def libra() -> list[str]:
    """A score that saturates: the slope is flat where the line from the origin is not."""
    points = [(60 + 3 * n, 170 - 120 * (1 - 2.718 ** (-n / 22))) for n in range(0, 121)]
    x, y = points[100]
    parts = [line(60, 170, 440, 170, width=1), line(60, 170, 60, 26, width=1), curve(points)]
    parts += [line(x - 90, y + 1, x + 60, y - 1, colour="#3a7cab", width=3), line(60, 170, x, y, colour=HOT, width=3)]
    parts += [
        f'<circle cx="{x}" cy="{y}" r="6" fill="{INK}"/>',
        words(430, 42, "plain gradient: flat,", colour="#3a7cab"),
    ]
    parts += [
        words(430, 60, "so “it does not matter”", colour="#3a7cab"),
        words(250, 134, "libra: the denominator is a", colour=HOT),
    ]
    parts += [
        words(250, 152, "constant, so it does matter", colour=HOT),
        words(300, 192, "evidence for the answer", colour=FAINT),
    ]
    return [*parts, words(66, 24, "score", colour=FAINT)]


DRAWINGS: dict[str, Callable[[], list[str]]] = {
    drawing.__name__: drawing for drawing in (score, readout, stream, flow, feedback, relevance, libra)
}


def svg(drawing: Callable[[], list[str]]) -> str:
    """A drawing on a white sheet, so that it reads on light and dark pages."""
    title = escape((drawing.__doc__ or "").strip())
    body = "\n".join([tip("tip", FAINT), tip("hot", HOT), *drawing()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" role="img">\n<title>{title}</title>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> int:
    for name, drawing in DRAWINGS.items():
        (PICTURES / f"concept-{name}.svg").write_text(svg(drawing))
    return 0


if __name__ == "__main__":
    sys.exit(main())
