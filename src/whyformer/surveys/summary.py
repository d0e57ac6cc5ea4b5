"""A survey in words: three sentences, and tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whyformer.metrics.statistics import Interval
from whyformer.render.text_spans import visible
from whyformer.surveys.cues import Cue, members_of
from whyformer.surveys.proof import FEWEST_SAMPLES

if TYPE_CHECKING:
    from whyformer.surveys.survey_result import Driver, FailureGroup, Survey

CUES_NAMED, DRIVERS_LISTED = 3, 12  # cues in a sentence, and in the terminal
ROW = "{:<24} {:<14} {:>7} {:>7} {:>16} {:>7} {:>8}"


def quoted_cue(cue: Cue) -> str:
    """A cue in a sentence: words of a text in quotation marks."""
    if cue.kind in ("word", "phrase"):
        return f"“{visible(cue.name)}”"
    if cue.members:
        return _listed([quoted_cue(member) for member in members_of(cue)])
    return cue.name if cue.kind in ("cluster", "set") else f"the {cue.name}"


def overview(survey: Survey) -> tuple[str, str, str]:
    """Three sentences: on drivers, on failures, on shortcuts or the object."""
    return _drivers_sentence(survey), _failures_sentence(survey), _shortcuts_sentence(survey)


def _drivers_sentence(survey: Survey) -> str:
    samples = f"{survey.samples:,} {survey.kind}{'s' * (survey.samples != 1)}"
    what = f"{survey.model} {'heard' if survey.kind == 'sound' else 'read'} {samples}"
    if not survey.tested:
        return f"{what}; there was no cue to test."
    if not survey.drivers:
        cues = len({driver.cue for driver in survey.tested})
        if all(driver.proof.samples < FEWEST_SAMPLES for driver in survey.tested):
            return (
                f"{what}; {'the only cue' if cues == 1 else f'each of {cues} cues'} is in too few of them for a test."
            )
        return (
            f"{what}; {'the only cue is not' if cues == 1 else f'none of {cues} cues is'} proven to drive its answers."
        )
    by_answer: dict[str | None, list[Driver]] = {}
    for driver in survey.drivers:
        by_answer.setdefault(driver.answer, []).append(driver)
    named: list[str | None] = []
    named.extend([one for one in by_answer if one is not None][:CUES_NAMED])
    named.extend([] if named else [None])
    parts = [
        f"{_listed([quoted_cue(one.cue) for one in by_answer[answer][:CUES_NAMED]])}"
        + (f" for {visible(answer)}" if answer is not None else "")
        for answer in named
    ]
    count = len({driver.cue for driver in survey.drivers})
    proven = f"{count} cues are proven to drive its answers" if count > 1 else "1 cue is proven to drive its answers"
    return f"{what}; {proven}, above all {'; '.join(parts)}."


def _failures_sentence(survey: Survey) -> str:
    if not survey.labelled:
        return "The samples have no labels, so that the model's errors are not known."
    if not survey.wrong:
        return f"None of the {survey.labelled:,} labelled samples is answered wrongly."
    share = f"{survey.wrong:,} of {survey.labelled:,} answers are wrong ({survey.wrong / survey.labelled:.0%})"
    named = [group for group in survey.failures if group.cue is not None and group.proof and group.proof.is_proven]
    seen = [group for group in survey.failures if group.cue is not None]
    first: FailureGroup | None = next(iter(named or seen), None)
    if first is None or first.cue is None:
        return f"{share}; no cue is shared by those that are."
    how = "proven to be driven" if named else "most often led (not proven)"
    return (
        f"{share}; {first.count} of the {visible(first.label)} read as {visible(first.answer)} are {how} by "
        f"{quoted_cue(first.cue)}."
    )


def _shortcuts_sentence(survey: Survey) -> str:
    parts = []
    if survey.object_share is not None:
        thing = "object" if survey.object_share.by == "masks" else "likely object"
        parts.append(
            f"of the probability that answers lose without the {thing} or without the background, "
            f"{_percent(survey.object_share.share)} goes with the {thing}"
        )
    ignored = any(driver.should_be_ignored or driver.relation for driver in survey.tested)
    cues = list(dict.fromkeys(driver.cue for driver in survey.shortcuts))
    if cues:
        parts.append(f"{_listed([quoted_cue(cue) for cue in cues[:CUES_NAMED]])} should not matter, but drives answers")
    elif ignored:
        parts.append("no cue that should not matter is proven to drive answers")
    elif not parts:
        parts.append("no cues were named that should not matter, so that shortcuts are not known")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def survey_text(survey: Survey) -> str:
    """The survey for a terminal: the three sentences, the drivers, the failures, remarks."""
    lines = [*overview(survey), ""]
    head = ROW.format("driver", "answer", "samples", "effect", "95 %", "flips", "q")
    lines += [head] + [_row(driver) for driver in survey.drivers[:DRIVERS_LISTED]] if survey.drivers else []
    more = len(survey.drivers) - DRIVERS_LISTED
    unproven = len({driver.cue for driver in survey.not_proven} - {driver.cue for driver in survey.drivers})
    rest = [f"… and {more} more"] * (more > 0)
    rest += [f"{unproven} cue{'s' * (unproven != 1)} seen, not proven"] * bool(unproven)
    lines += [f"{'; '.join(rest)}."] if rest else []
    named = [group for group in survey.failures if group.cue is not None]
    lines += ["", "failures"] if named else []
    for group in named[:DRIVERS_LISTED]:
        assert group.cue is not None
        proof = "proven" if group.proof is not None and group.proof.is_proven else "not proven"
        names = f"{visible(group.label)} read as {visible(group.answer)}"
        lines.append(f"{group.count:>4} {names}: {quoted_cue(group.cue)} ({proof})")
    return "\n".join([*lines, *(f"Note: {note}" for note in survey.notes)])


def _row(driver: Driver) -> str:
    proof, name = driver.proof, visible(driver.cue.name)
    bounds = f"[{proof.excess.low:.2f}, {proof.excess.high:.2f}]"
    mark = " shortcut" if driver.is_shortcut else ""
    return (
        ROW.format(
            name if len(name) <= 24 else f"{name[:23]}…",
            visible(driver.answer or "all")[:14],
            driver.support,
            f"{proof.excess.value:.2f}",
            bounds,
            f"{proof.flips.value:.0%}",
            f"{proof.q:.2g}",
        )
        + mark
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(share: Interval) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
