"""The difference of two models in words: three sentences, and tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyformer.render.text_spans import visible
from whyformer.surveys.summary import quoted_cue

if TYPE_CHECKING:
    from whyformer.surveys.model_diff import CueChange, ModelDiff

CUES_SHOWN, CUES_IN_SENTENCE = 12, 3
CHANGE_ROW = "{:<24} {:<14} {:>7} {:>7} {:>7} {:>7} {:>16} {:>8}"


def diff_overview(result: ModelDiff) -> tuple[str, str, str]:
    """Three sentences: on answers, on reasons, on cues."""
    return _answers_sentence(result), _reasons_sentence(result), _cues_sentence(result)


def _answers_sentence(result: ModelDiff) -> str:
    verb = "heard" if result.kind == "sound" else "read"
    what = f"{' and '.join(map(visible, result.models))} {verb} {result.samples:,} {result.kind}s and"
    if not result.changed_samples:
        return f"{what} give the same answers to all of them."
    move, count = result.moves[0], len(result.changed_samples)
    text = (
        f"{what} differ in the answers to {count:,} of them ({result.changed_share:.1%}), most often "
        f"{visible(move.second)} instead of {visible(move.first)} ({move.count:,})"
    )
    if result.labelled:
        first, second = result.wrong
        text += f"; of {result.labelled:,} labelled ones the first gets {first:,} wrong, the second {second:,}"
    return f"{text}."


def _reasons_sentence(result: ModelDiff) -> str:
    if result.correlation is None:
        return "No sample with the same answer has scores that can be compared."
    mean = result.correlation
    moved = len(result.moved_reasons)
    how = f"{moved:,} of them ({result.reasons_share:.1%}) for other reasons" if moved else "none for other reasons"
    return (
        f"{result.compared:,} answers stayed, {how} (a rank correlation of their scores below {result.limit:g}); the "
        f"mean correlation is {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]."
    )


def _cues_sentence(result: ModelDiff) -> str:
    changed = result.changed_cues
    if not changed:
        return f"None of the {len(result.cues)} cues tested is proven to have another effect."
    names = list(dict.fromkeys(quoted_cue(change.cue) for change in changed))
    first = changed[0]
    has = f"{len(names)} cues have another effect" if len(names) > 1 else "1 cue has another effect"
    rest = ", ".join(names[1:CUES_IN_SENTENCE])
    return (
        f"{has}, above all {names[0]}: {_nats(first.first.value)} became {_nats(first.second.value)} nats"
        f"{f' for {visible(first.answer)}' if first.answer else ''}{f'; then {rest}' if rest else ''}."
    )


def diff_text(result: ModelDiff) -> str:
    """The difference for a terminal: the three sentences, the changed cues, remarks."""
    lines = [*result.overview, ""]
    changed = result.changed_cues
    if changed:
        lines.append(CHANGE_ROW.format("cue", "answer", "samples", "first", "second", "change", "95 %", "q"))
        lines += map(_row, changed[:CUES_SHOWN])
    rest = len(result.cues) - len(changed)
    more = len(changed) - CUES_SHOWN
    parts = [f"… and {more} more"] * (more > 0) + [f"{rest} cues without a proven change"] * bool(rest)
    lines += [f"{'; '.join(parts)}."] if parts else []
    return "\n".join([*lines, *(f"Note: {note}" for note in result.notes)])


def _row(change: CueChange) -> str:
    name = visible(change.cue.name)
    return CHANGE_ROW.format(
        name if len(name) <= 24 else f"{name[:23]}…",
        visible(change.answer or "all")[:14],
        change.samples,
        *(f"{value:.2f}" for value in (change.first.value, change.second.value, change.change.value)),
        f"[{change.change.low:.2f}, {change.change.high:.2f}]",
        f"{change.q:.2g}",
    )


def _nats(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
