"""Answers with known support, measured: what verdicts are calibrated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whyformer.api.answer_support import answer_support
from whyformer.api.explain_response import explain_response
from whyformer.api.served_scorer import ServedScorer
from whyformer.facts.statements import SupportCase
from whyformer.models.loading import LoadedModel
from whyformer.results.response import Response
from whyformer.results.support import Support, UnitSupport
from whyformer.results.support_schema import support_dict


@dataclass(frozen=True)
class CaseCall:
    """The arguments that a case is explained with: its answer has a unit for each of its statements."""

    prompt: Any
    answer: str
    documents: list[tuple[str, str]] | None
    units: list[tuple[int, int]]


def case_call(tokenizer: Any, case: SupportCase) -> CaseCall:
    """The arguments for a model with this tokenizer, which may have a chat template."""
    is_chat = bool(getattr(tokenizer, "chat_template", None))
    answer = case.answer if is_chat else f" {case.answer}"
    start, places = len(answer) - len(case.answer), []
    for statement in case.statements:
        places.append((start, start + len(statement.text)))
        start += len(statement.text) + 1
    if not case.is_plain:
        return CaseCall(case.question, answer, list(case.documents), places)
    prompt = [{"role": "user", "content": case.prompt}] if is_chat else case.prompt
    return CaseCall(prompt, answer, None, places)


def case_response(loaded_model: LoadedModel, case: SupportCase) -> Response:
    """The explanation of a case's answer, a row for each of its statements."""
    call = case_call(loaded_model.tokenizer, case)
    return explain_response(call.prompt, call.answer, loaded_model, context=call.documents, units=call.units)


def case_support(model: LoadedModel | ServedScorer, case: SupportCase, **options: Any) -> Support:
    """The verdicts on a case's answer, one for each of its statements."""
    call = case_call(model.tokenizer, case)
    return answer_support(model, call.prompt, call.answer, call.documents, units=call.units, **options)


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
