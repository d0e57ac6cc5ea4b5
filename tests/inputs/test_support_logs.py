"""Logs of answers: rows, messages and exported spans."""

from __future__ import annotations

import json

import pytest

from whyformer.errors import WhyformerError
from whyformer.inputs.support_logs import read_support_log

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]
ANSWER = {"role": "assistant", "content": "In Rome."}
GENAI = [{"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]} for one in (*MESSAGES, ANSWER)]
OPENINFERENCE = {
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be brief.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.content": "Where is it?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "In Rome.",
    "llm.model_name": "some-model",
}
OTEL = {
    "gen_ai.input.messages": json.dumps(GENAI[:2]),
    "gen_ai.output.messages": json.dumps(GENAI[2:]),
}
OTLP = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {"spanId": "1", "attributes": [{"key": "db.system", "value": {"stringValue": "x"}}]},
                        {
                            "spanId": "2",
                            "attributes": [
                                {"key": key, "value": {"stringValue": value}} for key, value in OTEL.items()
                            ],
                        },
                    ]
                }
            ]
        }
    ]
}


NESTED = {
    "llm": {
        "input_messages": [{"message": one} for one in MESSAGES],
        "output_messages": [
            {"message": {"role": "assistant", "contents": [{"message_content": {"text": "In Rome."}}]}}
        ],
    }
}
COLUMNS = {
    "name": "chat",
    "attributes.llm.input_messages": [{f"message.{key}": value for key, value in one.items()} for one in MESSAGES],
    "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "In Rome."}],
}
OPENLLMETRY = {
    **{f"gen_ai.prompt.{n}.{key}": value for n, one in enumerate(MESSAGES) for key, value in one.items()},
    "gen_ai.completion.0.content": "In Rome.",
}


def read(tmp_path, *rows, is_list=False):
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps(rows) if is_list else "\n".join(map(json.dumps, rows)))
    return read_support_log(file)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [*MESSAGES, ANSWER]},
        {"messages": [*MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "In Rome."}]}]},
        {"attributes": OPENINFERENCE},
        {"attributes": OTEL},
        {"attributes": NESTED},
        COLUMNS,
        {"attributes": OPENLLMETRY},
        OTLP,
    ],
)
def test_messages_and_spans_are_a_prompt_and_an_answer(tmp_path, row):
    ((answer,), errors) = read(tmp_path, row)
    assert (answer.prompt, answer.answer, answer.documents, errors) == (MESSAGES, "In Rome.", None, [])


@pytest.mark.parametrize("is_list", [True, False])
def test_spans_that_call_no_model_are_left_out(tmp_path, is_list):
    retriever = {"span_id": "r", "attributes": {"openinference.span.kind": "RETRIEVER", "input.value": "Where is it?"}}
    model = {"context": {"span_id": "m"}, "attributes": OPENINFERENCE}
    ((answer,), errors) = read(tmp_path, retriever, model, is_list=is_list)
    assert (answer.name, errors) == ("m", [])


@pytest.mark.parametrize("is_list", [True, False])
def test_rows_have_a_question_documents_and_an_answer(tmp_path, is_list):
    row = {"id": "a", "question": "Where?", "documents": ["It is in Rome."], "answer": "Rome.", "labels": [True]}
    answers, errors = read(tmp_path, row, {**row, "id": 7}, is_list=is_list)
    assert [(one.name, one.number, one.labels) for one in answers] == [("a", 1, (True,)), ("7", 2, (True,))]
    assert (answers[0].prompt, answers[0].documents, errors) == ("Where?", ("It is in Rome.",), [])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Where?", "answer": "Rome."}, "'documents' is missing"),
        ({"question": "Where?", "documents": "Rome", "answer": "Rome."}, "is a list of texts"),
        ({"messages": MESSAGES}, "not one of 'user'"),
        ({"messages": [{"role": "user"}, ANSWER]}, "a message has a role and a content"),
        (["question"], "an object is needed"),
        ({"question": "W?", "documents": ["a"], "answer": "b", "labels": "yes"}, "true or false for each sentence"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(tmp_path, row, message):
    good = {"question": "Where?", "documents": ["It is in Rome."], "answer": "Rome."}
    answers, (error,) = read(tmp_path, good, row)
    assert len(answers) == 1
    assert error.startswith("row 2: ")
    assert message in error


def test_a_log_without_rows_or_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(WhyformerError, match="has no answers"):
        read_support_log(tmp_path / "empty.jsonl")
    (tmp_path / "broken.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(WhyformerError, match="is not UTF-8"):
        read_support_log(tmp_path / "broken.jsonl")
    with pytest.raises(WhyformerError, match="cannot be read"):
        read_support_log(tmp_path / "nowhere.jsonl")
