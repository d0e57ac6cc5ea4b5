"""Render the difference of two models as one page: three sentences, changed cues, samples side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whyformer.render.html import TEMPLATES
from whyformer.render.shades import declarations
from whyformer.render.survey_page import LEVELS, effect_bar, effect_bounds, signed, word_shade
from whyformer.render.text_spans import one_line, readable, visible

STEADY_CUES = 20  # without a change, that are shown


def diff_page(document: Mapping[str, Any], overview: Sequence[str], changed: int) -> str:
    """Render the plain data of a difference, whose first cues are those that changed."""
    cues = [_cue(one) for one in document["cues"]]
    shades = {
        f"{kind}-{level}": declarations(f"{kind}-{level}")
        for kind in ("for", "against")
        for level in range(100 // LEVELS, 101, 100 // LEVELS)
    }
    models = [readable(name) for name in document["models"]]
    return TEMPLATES.get_template("diff_page.html.j2").render(
        title=f"{models[0]} and {models[1]}: {_changes(document)}",
        file=readable(document["file"]),
        shades=shades,
        grid=None,
        script=None,
        overview=[readable(sentence) for sentence in overview],
        models=models,
        methods=list(dict.fromkeys(readable(name) for name in document["methods"])),
        kind=document["kind"],
        figures=_figures(document, changed),
        changed=cues[:changed],
        steady=cues[changed : changed + STEADY_CUES],
        hidden=max(0, len(cues) - changed - STEADY_CUES),
        moves=[
            {"first": readable(one["first"]), "second": readable(one["second"]), "count": one["count"]}
            for one in document["moves"]
        ],
        examples=[_sample(one) for one in document["examples"]],
        limit=f"{document['limit']:g}",
        notes=[readable(one_line(note)) for note in document["notes"]],
    )


def _changes(document: Mapping[str, Any]) -> str:
    """How many answers and reasons changed, for the title."""
    changed, moved = len(document["changed_samples"]), len(document["moved_reasons"])
    return f"{changed:,} of {document['samples']:,} answers changed, {moved:,} stayed for other reasons"


def _names(cues: Sequence[Mapping[str, Any]]) -> int:
    """How many different cues; each may be tested for several answers."""
    return len({(one["cue"]["kind"], one["cue"]["name"]) for one in cues})


def _figures(document: Mapping[str, Any], changed: int) -> list[tuple[str, str]]:
    count, compared, moved = document["samples"], document["compared"], len(document["moved_reasons"])
    figures = [
        (f"{len(document['changed_samples']) / count:.1%}", f"of {count:,} answers changed"),
        (
            f"{moved / compared:.1%}" if compared else "–",
            f"of {compared:,} that stayed have other reasons (correlation below {document['limit']:g})",
        ),
        (f"{_names(document['cues'][:changed])} of {_names(document['cues'])}", "cues with another effect"),
    ]
    mean = document["correlation"]
    if mean is not None:
        figures.insert(2, (f"{mean['value']:.2f}", "mean rank correlation of the scores"))
    if document["labelled"]:
        first, second = (wrong / document["labelled"] for wrong in document["wrong"])
        figures.append((f"{first:.1%} → {second:.1%}", f"of {document['labelled']:,} answers wrong"))
    return figures


def _cue(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": visible(one["cue"]["name"]),
        "kind": one["cue"]["kind"],
        "answer": "" if one["answer"] is None else readable(one["answer"]),
        "samples": one["samples"],
        "first": signed(one["first"]["value"]),
        "second": signed(one["second"]["value"]),
        "bars": [effect_bar(one["first"]), effect_bar(one["second"])],
        "change": signed(one["change"]["value"]),
        "bounds": effect_bounds(one["change"]),
        "q": f"{one['q']:.2g}",
    }


def _sample(one: Mapping[str, Any]) -> dict[str, Any]:
    sides = [
        {
            "answer": readable(answer),
            "probability": None if probability is None else f"{probability:.2f}",
            "wrong": one["label"] is not None and one["label"] != answer,
            "words": [(readable(word[0]), word_shade(word[1 + place])) for word in one["words"]],
            "picture": one["pictures"][place] if one["pictures"] else None,
        }
        for place, (answer, probability) in enumerate(zip(one["answers"], one["probabilities"], strict=True))
    ]
    return {
        "name": readable(one_line(one["name"])),
        "label": None if one["label"] is None else readable(one["label"]),
        "changed": one["answers"][0] != one["answers"][1],
        "correlation": None if one["correlation"] is None else signed(one["correlation"]),
        "sides": sides,
    }
