"""Render a report on a log of answers: totals, and a row per answer, the worst first."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from whyformer.inputs.verdicts import FAULTS, VERDICTS
from whyformer.render.html import TEMPLATES
from whyformer.render.text_spans import fixed, one_line, readable
from whyformer.render.verdict_view import VerdictView, calibrated_on, verdict_view

if TYPE_CHECKING:
    from whyformer.results.support import Support

LONGEST_QUESTION = 200


@dataclass(frozen=True)
class ReportRow:
    """An answer of a log with its verdicts."""

    name: str
    question: str
    support: Support

    @property
    def faults(self) -> int:
        """The number of sentences that are not supported or contradicted."""
        return sum(unit.verdict in FAULTS for unit in self.support.units)

    @property
    def worst(self) -> float:
        """The lowest log-probability per token of a sentence."""
        return min(unit.per_token for unit in self.support.units)

    @property
    def worst_text(self) -> str:
        """The same in digits."""
        return fixed(self.worst)

    @property
    def units(self) -> list[VerdictView]:
        """The verdict on each sentence."""
        return [verdict_view(self.support, unit) for unit in self.support.units]

    @property
    def short_question(self) -> str:
        """The end of the question, which in a long prompt comes last."""
        line = readable(one_line(self.question))
        return line if len(line) <= LONGEST_QUESTION else f"…{line[-LONGEST_QUESTION:].lstrip()}"


@dataclass(frozen=True)
class ReportTotal:
    """A share of the sentences or answers, with its interval in percent."""

    name: str
    count: int
    of: int
    low: float
    high: float

    @property
    def text(self) -> str:
        """The share in words: `12 of 40 (30 % [18, 45])`."""
        share = 100 * self.count / max(1, self.of)
        return f"{self.count} of {self.of} ({share:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}])"


def worst_first(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Answers with the most faults first, then those that the model finds least likely."""
    return sorted(rows, key=lambda row: (-row.faults, row.worst))


def support_report(
    rows: Sequence[ReportRow],
    totals: Sequence[ReportTotal],
    *,
    model: str,
    calibration: str,
    errors: Sequence[str] = (),
    file: str = "",
) -> str:
    """Render the report as a page, whose content security policy allows only its own script."""
    script = TEMPLATES.get_template("support_report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return TEMPLATES.get_template("support_report.html.j2").render(
        title=_title(rows),
        shades={},
        grid=None,
        rows=list(enumerate(worst_first(rows), start=1)),
        totals=totals,
        model=readable(model),
        file=readable(file),
        calibration=calibrated_on(calibration),
        errors=[readable(one_line(error)) for error in errors],
        verdicts=VERDICTS,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _title(rows: Sequence[ReportRow]) -> str:
    """How many answers have no fault: `12 of 40 answers without an unsupported sentence`."""
    sound = sum(row.faults == 0 for row in rows)
    return f"{sound} of {len(rows)} answers without an unsupported sentence"
