"""Answers with known support, measured: what verdicts are calibrated on."""

from __future__ import annotations

from typing import Any

from whyformer.api.explain_response import explain_response
from whyformer.facts.statements import SupportCase
from whyformer.models.loading import LoadedModel
from whyformer.results.response import Response
from whyformer.results.support import Support, UnitSupport
from whyformer.results.support_schema import support_dict


def case_response(loaded_model: LoadedModel, case: SupportCase) -> Response:
    """The explanation of a case's answer, a row for each of its statements."""
    is_chat = bool(getattr(loaded_model.tokenizer, "chat_template", None))
    answer = case.answer if is_chat else f" {case.answer}"
    shift, places = len(answer) - len(case.answer), []
    start = shift
    for statement in case.statements:
        places.append((start, start + len(statement.text)))
        start += len(statement.text) + 1
    if not case.is_plain:
        return explain_response(case.question, answer, loaded_model, context=list(case.documents), units=places)
    prompt = [{"role": "user", "content": case.prompt}] if is_chat else case.prompt
    return explain_response(prompt, answer, loaded_model, units=places)


def case_rows(case: SupportCase, support: Support) -> list[dict[str, Any]]:
    """A row of plain data for each statement of a case: how it was made, what is right, and its figures."""
    each = zip(case.statements, support.units, support_dict(support)["units"], strict=True)
    return [
        {
            "seed": case.seed,
            "case": case.kind,
            "statement": number,
            "kind": statement.kind,
            "right": list(statement.verdicts),
            "causes": [list(cause) for cause in statement.causes],
            "knows": _says(unit, case, number),
            "unit": figures,
        }
        for number, (statement, unit, figures) in enumerate(each)
    ]


def _says(unit: UnitSupport, case: SupportCase, number: int) -> bool | None:
    """Whether the model itself answers rightly; None if the right answer is not known."""
    if not case.value or number:
        return None
    return unit.own_answer is not None and case.value.lower() in unit.own_answer.lower()
