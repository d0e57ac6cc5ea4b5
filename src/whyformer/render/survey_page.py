"""Render a survey as one page: three sentences, a table of drivers with their examples, failures, patch clusters."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from whyformer.render.colour import Scale
from whyformer.render.html import TEMPLATES
from whyformer.render.shades import declarations, token_shade
from whyformer.render.text_spans import one_line, readable, visible

SHORTEST_BAR, LONGEST_BAR = -1.0, 3.0  # nats: the ends of the bars, on every page
CUES_IN_TITLE = 2
LEVELS = 10  # shades of words: as many as a reader tells apart, and few enough for a small page
WORD_SCALE = Scale(-1.0, 1.0)


def survey_page(document: Mapping[str, Any], overview: Sequence[str]) -> str:
    """Render the plain data of a survey; the content security policy allows only the page's own script."""
    script = TEMPLATES.get_template("survey_page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tested = [_driver(number, one, document["montages"]) for number, one in enumerate(document["tested"])]
    failures = [_failure(one) for one in document["failures"]]
    shades = {
        f"{kind}-{level}": declarations(f"{kind}-{level}")
        for kind in ("for", "against")
        for level in range(100 // LEVELS, 101, 100 // LEVELS)
    }
    return TEMPLATES.get_template("survey_page.html.j2").render(
        title=_title(document, tested),
        file=readable(document["file"]),
        shades=shades,
        grid=None,
        overview=[readable(sentence) for sentence in overview],
        model=readable(document["model"]),
        method=readable(document["method"]),
        kind=document["kind"],
        figures=list(_figures(document, tested)),
        shortcuts=[one for one in tested if one["shortcut"]],
        drivers=[one for one in tested if one["proven"]],
        unproven=sorted((one for one in tested if not one["proven"]), key=lambda one: one["too_few"]),
        answers=[readable(name) for name in document["answers"]],
        kinds=sorted({one["kind"] for one in tested}),
        failures=[one for one in failures if one["cue"]],
        others=[one for one in failures if not one["cue"]],
        montages=document["montages"],
        notes=[readable(one_line(note)) for note in document["notes"]],
        shortest=SHORTEST_BAR,
        longest=LONGEST_BAR,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _title(document: Mapping[str, Any], tested: Sequence[Mapping[str, Any]]) -> str:
    """The drivers of the model: shortcuts if there are any, otherwise the strongest."""
    shortcuts = [one for one in tested if one["shortcut"]]
    drivers = shortcuts or [one for one in tested if one["proven"]]
    names = list(dict.fromkeys(f"“{one['name']}”" for one in drivers))
    model = readable(document["model"])
    if not names:
        return f"{model}: no cue is proven to drive its answers"
    more = f" and {len(names) - CUES_IN_TITLE} more" if len(names) > CUES_IN_TITLE else ""
    kind = f"shortcut{'s' * (len(names) > 1)} " if shortcuts else ""
    return f"{model}: driven by {kind}{', '.join(names[:CUES_IN_TITLE])}{more}"


def _figures(document: Mapping[str, Any], tested: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    cues, proven = ({(one["kind"], one["name"]) for one in own} for own in (tested, [o for o in tested if o["proven"]]))
    figures = [
        (f"{document['samples']:,}", f"{document['kind']}s"),
        (f"{len(proven)} of {len(cues)}", "cues proven"),
    ]
    if document["labelled"]:
        figures.append(
            (f"{document['wrong'] / document['labelled']:.1%}", f"of {document['labelled']:,} answers wrong")
        )
    share = document["object_share"]
    if share is not None:
        name = "object" if share["by"] == "masks" else "likely object"
        value = share["share"]
        bounds = f"95 % from {_percent(value['low'])} to {_percent(value['high'])}, {share['samples']} pictures"
        figures.append((_percent(value["value"]), f"of what matters is the {name} ({bounds})"))
    if any(one["ignored"] or one["relation"] for one in tested):
        figures.append((str(sum(one["shortcut"] for one in tested)), "shortcuts"))
    return figures


def _driver(number: int, one: Mapping[str, Any], montages: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    proof, cue = one["proof"], one["cue"]
    is_proven = proof["proven"]
    excess, flips = proof["excess"], proof["flips"]
    return {
        "number": number,
        "name": visible(cue["name"]),
        "kind": cue["kind"],
        "answer": "" if one["answer"] is None else readable(one["answer"]),
        "support": one["support"],
        "wrong": one["wrong"],
        "leading": one["leading"],
        "score": one["score"],
        "tested": proof["samples"],
        "excess": excess["value"],
        "effect": signed(excess["value"]),
        "bounds": effect_bounds(excess),
        "bar": effect_bar(excess),
        "own": f"{signed(proof['drop']['value'])} nats",
        "probability": signed(proof["probability"]["value"]),
        "flips": flips["value"],
        "flip_text": _percent(flips["value"]),
        "flip_bounds": f"{_percent(flips['low'])} to {_percent(flips['high'])}",
        "random_flips": _percent(proof["random_flips"]),
        "p": f"{proof['p']:.2g}",
        "q": proof["q"],
        "q_text": f"{proof['q']:.2g}",
        "too_few": proof["too_few"],
        "proven": is_proven,
        "ignored": one["should_be_ignored"],
        "background": None if cue["kind"] == "mask" or one["background"] is None else _percent(one["background"]),
        "relation": None if one["relation"] is None else _relation(one["relation"]),
        "shortcut": one["should_be_ignored"] and is_proven,
        "montage": list(montages.get(cue["name"], ()))[:4] if cue["kind"] == "cluster" else [],
        "examples": [_example(example) for example in one["examples"]],
    }


def _relation(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "here": _percent(one["here"]),
        "elsewhere": _percent(one["elsewhere"]),
        "samples": one["samples"],
        "q": f"{one['q']:.2g}",
        "differs": one["differs"],
    }


def _failure(one: Mapping[str, Any]) -> dict[str, Any]:
    proof = one["proof"]
    return {
        "label": readable(one["label"]),
        "answer": readable(one["answer"]),
        "cue": "" if one["cue"] is None else _cue_names(one["cue"]),
        "several": one["cue"] is not None and one["cue"]["kind"] == "set",
        "count": one["count"],
        "mistakes": one["mistakes"],
        "share": _percent(one["count"] / one["errors"]) if one["errors"] else "",
        "proven": proof is not None and proof["proven"],
        "tested": 0 if proof is None else proof["samples"],
        "too_few": proof is not None and proof["too_few"],
        "effect": "" if proof is None else signed(proof["excess"]["value"]),
        "bounds": "" if proof is None else effect_bounds(proof["excess"]),
        "q": "" if proof is None else f"{proof['q']:.2g}",
        "corrected": None if one["corrected"] is None else _percent(one["corrected"]),
        "examples": [_example(example) for example in one["examples"]],
    }


def _cue_names(cue: Mapping[str, Any]) -> str:
    """The name of a cue, or of each member of a set; words in quotation marks."""
    members = [(visible(one["name"]), one["kind"] in ("word", "phrase")) for one in cue["members"]]
    return ", ".join(f"“{name}”" if is_text else name for name, is_text in members)


def _example(one: Mapping[str, Any]) -> dict[str, Any]:
    changes = one["without"] is not None and one["without"] != one["answer"]
    return {
        "name": readable(one_line(one["name"])),
        "page": one["page"],
        "answer": readable(one["answer"]),
        "label": None if one["label"] is None else readable(one["label"]),
        "wrong": one["label"] is not None and one["label"] != one["answer"],
        "probability": None if one["probability"] is None else f"{one['probability']:.2f}",
        "words": [(readable(text), word_shade(score), is_cue) for text, score, is_cue in one["words"]],
        "pictures": one["pictures"],
        "change": None if one["drop"] is None else signed(-one["drop"]),
        "becomes": readable(one["without"]) if changes else None,
    }


def word_shade(score: float) -> str:
    """The class of a word's score, in steps of a tenth."""
    return token_shade(round(score * LEVELS) / LEVELS, WORD_SCALE)


def effect_bar(interval: Mapping[str, Any]) -> dict[str, Any] | None:
    """The bar of an effect, its side, and the line of its interval, in percent of the full width.

    The side says if the effect lies beyond the end of the bar.
    """
    if interval["low"] is None:
        return None

    def place(nats: float) -> float:
        return 100 * (min(LONGEST_BAR, max(SHORTEST_BAR, nats)) - SHORTEST_BAR) / (LONGEST_BAR - SHORTEST_BAR)

    start, end = sorted((place(0.0), place(interval["value"])))
    low, high = place(interval["low"]), place(interval["high"])
    bar = {"left": round(start, 1), "width": round(end - start, 1), "low": round(low, 1), "span": round(high - low, 1)}
    side = "against" if interval["value"] < 0 else "for"
    return {**bar, "side": side + " beyond" * (not SHORTEST_BAR <= interval["value"] <= LONGEST_BAR)}


def signed(value: float | None) -> str:
    """A number with its sign; a dash for none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:+.2f}".replace("-", "−")


def effect_bounds(interval: Mapping[str, Any]) -> str:
    """Both ends of an interval."""
    return f"{signed(interval['low'])} to {signed(interval['high'])}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
