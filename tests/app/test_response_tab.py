"""The tab Response without a browser: documents, sources, downloads and code."""

import contextlib
import json
import shlex
import subprocess

import numpy as np
import pytest

from commands import run
from whyformer import Response, WhyformerError, explain_response
from whyformer.app.bundled_examples import DOCUMENTS, FACT_QUESTION
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice
from whyformer.app.response_tab import ResponseInputs, documents_of, explain_exchange
from whyformer.app.setup import Setup
from whyformer.app.work import Work

CONTEXT = [
    ("letter", "Anna gave the key to Boris. Clara painted the violin green."),
    ("diary", "Boris went to Rome. The hat is in the box. Hugo left the lamp in Lima."),
    ("note", "David has the box. Emil works as a tailor."),
]


@pytest.fixture(scope="module")
def setup():
    return Setup(model_choice())


def answer(setup, **exchange):
    return explain_exchange(Work(seconds=600), setup, ResponseInputs(**{"prompt": FACT_QUESTION, **exchange}))


def download(view, folder):
    return Response.load(view.save(folder)[".json"])


def assert_code_gives(response, view, folder):
    """Both the Python and the command line give the same scores, run in an empty folder."""
    folder.mkdir()
    with contextlib.chdir(folder):
        names = {}
        exec(view.code.python, names)
        np.testing.assert_allclose(names["response"].scores, response.scores, rtol=1e-3, atol=1e-6)
        *files, typed = view.code.command.split("\n")
        for line in files:
            subprocess.run(["sh", "-c", line], check=True)
        _, name, *arguments = shlex.split(typed)
        shown = json.loads(run(name, "--json", "--quiet", *arguments))
        np.testing.assert_allclose(shown["scores"], response.scores, rtol=1e-3, atol=1e-6)


def test_documents_are_parted_by_empty_lines_and_may_have_names():
    assert documents_of(DOCUMENTS) == CONTEXT
    assert documents_of("One: of\nmany\n \n\ntwo words: no name\n") == [("One", "of\nmany"), "two words: no name"]
    assert documents_of("  \n") == []


def test_a_question_is_answered_from_the_documents_and_its_code_gives_the_same(setup, tmp_path):
    view = answer(setup, documents=DOCUMENTS)
    response = download(view, tmp_path)
    assert response.text.strip() == "The key is in Rome. David has the hat."
    expected = explain_response(FACT_QUESTION, context=CONTEXT)
    np.testing.assert_allclose(response.scores, expected.scores, rtol=1e-3, atol=1e-6)
    assert view.html.count("data-row=") == 2
    assert "<script" not in view.html
    assert_code_gives(response, view, tmp_path / "again")


def test_a_response_that_is_given_is_explained_against_another(setup, tmp_path):
    exchange = {"response": "David has the hat.", "contrast": "Emil has the hat.", "method": "rollout"}
    view = answer(setup, documents=DOCUMENTS, **exchange)
    response = download(view, tmp_path)
    expected = explain_response(
        FACT_QUESTION, "David has the hat.", context=CONTEXT, contrast="Emil has the hat.", method="rollout"
    )
    np.testing.assert_allclose(response.scores, expected.scores, rtol=1e-3, atol=1e-6)
    assert_code_gives(response, view, tmp_path / "again")


def test_text_files_are_documents_by_their_names(setup, tmp_path):
    paths = []
    for name, text in CONTEXT:
        (tmp_path / f"{name}.txt").write_text(text)
        paths.append(str(tmp_path / f"{name}.txt"))
    view = answer(setup, files=paths, response="David has the hat.", method="rollout")
    names = {source.name for source in download(view, tmp_path).by("document").sources}
    assert {"letter", "diary", "note"} <= names


def test_without_documents_a_model_that_talks_gets_a_message(setup, tmp_path):
    view = answer(setup, prompt="Anna has the key. Who has the key?", response="Anna has the key.", method="rollout")
    response = download(view, tmp_path)
    assert [message.role for message in response.prompt.messages] == ["user"]
    assert_code_gives(response, view, tmp_path / "again")


def test_a_model_that_goes_on_with_a_text_gets_the_space_between(setup, tmp_path):
    asked = {"prompt": "The film was", "response": "great.", "model": "mini-gpt", "method": "rollout"}
    view = answer(setup, **asked)
    response = download(view, tmp_path)
    assert response.text == " great."
    assert_code_gives(response, view, tmp_path / "again")


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ({"prompt": " "}, "Type a question or a prompt first, or click an example"),
        ({"model": "mini-bert"}, "does not offer the model 'mini-bert', but mini-llm"),
        ({"documents": "\n\n".join("abcd")}, "4 documents, but this page takes at most 3: leave some out"),
        ({"documents": "x" * 70}, "104 characters, but this page takes at most 90: shorten it"),
        ({"files": ["gone.txt"]}, "The file is no longer kept here: upload it again"),
    ],
)
def test_what_cannot_be_explained_says_why(setup, exchange, message):
    small = Setup(setup.models, Limits(documents=3, characters=90))
    with pytest.raises(WhyformerError, match=message):
        answer(small, **exchange)
