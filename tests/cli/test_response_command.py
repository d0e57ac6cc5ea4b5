"""`whyformer response`: one prompt, and a file of many."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from commands import COMMAND, invoke, refusal, run
from conftest import CHAT_TEMPLATE
from whyformer import Response, explain_response
from whyformer.models.loading import quiet
from whyformer.scenes import example

FAST = ["--method", "rollout"]
ANSWER = " The music was great. The film was dull."


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with two documents, a question and a response, which is the current one."""
    monkeypatch.chdir(tmp_path)
    texts = {"almanac.txt": "Oslo is cold. It is big.\n", "review.txt": "Critics loved the music.\n"}
    texts |= {"question.txt": "How was the film?\n", "answer.txt": f"{ANSWER}\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def expected(**changes):
    context = [("almanac", "Oslo is cold. It is big."), ("review", "Critics loved the music.")]
    return explain_response("How was the film?", ANSWER, method="rollout", **{"context": context, **changes})


def assert_same(first: Response, second: Response) -> None:
    """Two results of one question that was computed twice."""
    assert (first.prompt, first.text, first.rows, first.sources) == (
        second.prompt,
        second.text,
        second.rows,
        second.sources,
    )
    np.testing.assert_allclose(first.scores, second.scores, rtol=1e-4, atol=1e-7)


def test_the_command_explains_what_the_library_does(files):
    command = ["response", "question.txt", "--context", "almanac.txt", "--context", "review.txt", *FAST]
    printed = run(*command, "--response", "answer.txt", "--out", "page.npz")
    assert_same(Response.load("page.npz"), expected())
    assert printed == f"{Response.load('page.npz')}\nWritten to page.npz\n"
    run(*command, "--response", ANSWER, "--sources", "document", "--units", "word", "--out", "words.json", "--quiet")
    assert_same(Response.load("words.json"), expected(units="word", sources="document"))


def test_the_command_prints_json_for_scripts(files):
    command = [
        "response",
        "question.txt",
        "--context",
        "almanac.txt",
        "--context",
        "Critics loved it.",
        "--json",
        *FAST,
    ]
    found = json.loads(run(*command, "--contrast", " It was bad.", "--response", "answer.txt", "--aggregate", "sum"))
    context = [("almanac", "Oslo is cold. It is big."), "Critics loved it."]
    other = expected(context=context, contrast=" It was bad.", aggregate="sum")
    assert found["options"]["contrast"] == " It was bad."
    np.testing.assert_allclose(found["scores"], other.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("focus", ["sources", "none", [2.0] + 33 * [0.5]])
def test_the_command_takes_a_focus(files, focus):
    context = ["--context", "almanac.txt", "--context", "review.txt", "--response", "answer.txt", "--units", "response"]
    named = focus if isinstance(focus, str) else ",".join(map(str, focus))
    found = json.loads(run("response", "question.txt", *context, "--focus", named, "--json", *FAST))
    other = expected(focus=focus, units="response")
    np.testing.assert_allclose(found["scores"], other.scores, rtol=1e-4, atol=1e-7)
    assert (found["focus"] is None) == (focus == "none")
    assert found["options"].get("focus", "none") == (focus if isinstance(focus, str) else "weights")


def test_a_model_writes_where_no_response_is_given():
    found = json.loads(run("response", "-", "--tokens", "3", "--json", *FAST, input="The film was\n"))
    assert found["prompt"]["text"] == "The film was"
    assert len(found["tokens"]["ids"]) == 3
    sampled = json.loads(run("response", "The film was", "--tokens", "3", "--seed", "5", "--json", *FAST))
    assert sampled["seed"] == 5


def test_messages_are_read_from_a_file(chat, files):
    with quiet():
        chat.model.save_pretrained("chat")
        chat.tokenizer.save_pretrained("chat")
    assert chat.tokenizer.chat_template == CHAT_TEMPLATE
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How was the film?"}]
    for content in (messages, {"messages": messages}):
        (files / "chat.json").write_text(json.dumps(content))
        command = ["response", "--messages", "chat.json", "--model", "./chat", "--response", "Dull.", "--json", *FAST]
        found = json.loads(run(*command, "--sources", "message"))
        assert [source["name"] for source in found["sources"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Give exactly one of PROMPT (a text or a file), --messages CHAT.json and --sound FILE, or use --batch."),
        (["--image", "a.png", "--sound", "a.wav"], "--image needs a PROMPT: messages contain their pictures"),
        (["which?", "--image", "a.png"], "A pair is pictures and a text, and mini-llm reads texts alone"),
        (["which?", "--image", "a.png", "--model", "mini-vlm"], "No file 'a.png'"),
        (["a", "--messages", "answer.txt"], "Give exactly one of PROMPT (a text or a file), --messages CHAT.json"),
        (["--messages", "answer.txt"], "--messages 'answer.txt' is not JSON (line 1: Expecting value)."),
        (["--messages", "three.json"], '--messages \'three.json\': a list of {"role": …, "content": …}, not 3.'),
        (["The film", "--response", "missing.txt"], "No file 'missing.txt'."),
        (["The film", "--response", ""], "--response is empty: give a text, or a file with one."),
        (["  "], "PROMPT is empty: give a text, or a file with one."),
        (["The film", "--out", "a.pdf"], "no format for '.pdf'. Known: .html, .png, .json, .npz."),
        (["The film", "--format", "png"], "--format png applies to the files of a --batch"),
        (["The film", "--model", "mini-vit"], "mini-vit"),
        (["The film", "--units", "the flim", "--response", " was a film"], "'the flim' is not in the response."),
        (["The film", "--sources", "document", "--tokens", "1", *FAST], "the prompt has no documents"),
        (["The film", "--batch", "lines.jsonl", "--out", "d"], "PROMPT applies to one prompt, but each line"),
        (["--contrast", "x", "--batch", "lines.jsonl", "--out", "d"], "--contrast applies to one prompt"),
        (["--batch", "lines.jsonl"], "--batch needs a folder for its results: name it with --out."),
        (["--batch", "lines.jsonl", "--out", "answer.txt"], "--out 'answer.txt' is a file: name a folder."),
        (["--batch", "missing.jsonl", "--out", "d"], "--batch 'missing.jsonl' cannot be read: No such file"),
        (["--batch", "empty.jsonl", "--out", "d"], "--batch 'empty.jsonl' has no lines: there is nothing to explain."),
    ],
)
def test_what_cannot_be_explained_is_one_line(files, arguments, reason):
    (files / "empty.jsonl").write_text("\n\n")
    (files / "three.json").write_text("3")
    assert reason in refusal("response", *arguments)


LINES = [
    {"prompt": "The film was", "response": " dull.", "id": "first"},
    {"prompt": "The music was", "context": [["a", "It rained."], "It was cold."], "response": " great."},
    {"prompt": "The weather was", "response": " bad.", "contrast": " good."},
]


def write_lines(path, lines):
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


def test_a_batch_has_a_file_for_each_line(files):
    write_lines(files / "lines.jsonl", [LINES[0], "", *LINES[1:]])
    command = ["response", "--batch", "lines.jsonl", "--out", "out", "--format", "json", *FAST]
    assert run(*command) == "Written to out: 3 of 3 lines.\n"
    index = [json.loads(line) for line in (files / "out" / "index.jsonl").read_text().splitlines()]
    assert [(one["line"], one["file"]) for one in index] == [(1, "000001.json"), (3, "000003.json"), (4, "000004.json")]
    assert [one.get("id") for one in index] == ["first", None, None]
    for line, record in zip(LINES, index, strict=True):
        extra = {name: line[name] for name in ("context", "contrast") if name in line}
        found = explain_response(line["prompt"], line["response"], method="rollout", **extra)
        assert_same(Response.load(f"out/{record['file']}"), found)


def test_a_bad_line_is_named_and_the_others_go_on(files):
    bad = ["no json", '["a"]', {"prompt": "a", "responce": "b"}, {"response": "b"}, {"prompt": ""}]
    write_lines(files / "lines.jsonl", [LINES[0], *bad, LINES[1]])
    result = invoke("response", "--batch", "lines.jsonl", "--out", "out", *FAST)
    assert (result.exit_code, result.stdout) == (1, "Written to out: 2 of 7 lines.\n")
    reasons = [
        "line 2: not JSON (Expecting value, column 1).",
        "line 3: an object with a prompt is needed, not '[\"a\"]'.",
        "line 4: unknown field 'responce'. Did you mean 'response'?",
        'line 5: one of "prompt", "messages" and "sound" is needed.',
        "line 6: The prompt is empty",
    ]
    for shown, reason in zip(result.stderr.splitlines(), reasons, strict=True):
        assert shown.startswith(f"whyformer: lines.jsonl, {reason}")
    assert sorted(path.name for path in (files / "out").iterdir()) == ["000001.html", "000007.html", "index.jsonl"]
    records = [json.loads(line) for line in invoke(*COMMAND_OF_BATCH, "--json").stdout.splitlines()]
    assert [(record["line"], "error" in record) for record in records] == [(line, True) for line in range(2, 7)]


COMMAND_OF_BATCH = ["response", "--batch", "lines.jsonl", "--out", "out", *FAST]


def test_what_is_finished_is_not_computed_again(files, monkeypatch):
    import whyformer.api.explain_response as api

    prompts = []
    explain = api.explain_response
    monkeypatch.setattr(
        api,
        "explain_response",
        lambda prompt, *rest, **extra: (prompts.append(prompt), explain(prompt, *rest, **extra))[1],
    )
    write_lines(files / "lines.jsonl", LINES)
    run(*COMMAND_OF_BATCH)
    assert prompts == [line["prompt"] for line in LINES]
    run(*COMMAND_OF_BATCH)
    assert len(prompts) == 3
    (files / "out" / "000002.html").unlink()  # a file that somebody took away
    write_lines(files / "lines.jsonl", [*LINES[:2], LINES[2] | {"response": " cold."}])  # and a line that changed
    run(*COMMAND_OF_BATCH)
    assert prompts[3:] == [LINES[1]["prompt"], LINES[2]["prompt"]]
    run(*COMMAND_OF_BATCH, "--units", "token")
    assert len(prompts) == 8


def test_what_a_kill_leaves_is_gone_on_with(files):
    write_lines(files / "lines.jsonl", [LINES[0] | {"id": number} for number in range(200)])
    command = [*COMMAND, *COMMAND_OF_BATCH, "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        deadline = time.monotonic() + 120
        while not (files / "out" / "000003.html").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        started.send_signal(signal.SIGKILL)
    index = files / "out" / "index.jsonl"
    done = [json.loads(line)["line"] for line in index.read_text().splitlines()]
    assert 2 <= len(done) < 200
    written = {number: os.stat(files / "out" / f"{number:06}.html").st_mtime_ns for number in done}
    with index.open("a") as file:
        file.write('{"line": 17')  # as a kill in the middle of a record would leave it
    write_lines(files / "lines.jsonl", [LINES[0] | {"id": number} for number in range(len(done) + 2)])
    found = invoke(*COMMAND_OF_BATCH)
    count = len(done) + 2
    assert (found.exit_code, found.stdout) == (0, f"Written to out: {count} of {count} lines.\n")
    assert all(os.stat(files / "out" / f"{number:06}.html").st_mtime_ns == written[number] for number in done)
    lines = [line for line in index.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["line"] for line in lines] == list(range(1, count + 1))


def test_progress_says_what_is_left(files, monkeypatch):
    from whyformer.cli import response_batch

    monkeypatch.setattr(response_batch, "SECONDS_BETWEEN", 0)
    write_lines(files / "lines.jsonl", LINES)
    result = invoke(*COMMAND_OF_BATCH)
    assert result.stderr.splitlines()[-1] == "3 of 3 lines, about 0 s left"
    assert result.stderr.startswith("1 of 3 lines, about ")


def test_pictures_are_named_on_the_command_line_and_in_the_lines_of_a_batch(files):
    scene = example(3)
    scene.image.save("scene.png")
    question, answer = "What colour is the star?", " the star is cyan"
    command = ["response", question, "--image", "scene.png", "--model", "mini-vlm", "--units", "word", *FAST]
    printed = run(*command, "--tokens", "8", "--out", "page.npz")
    assert printed.startswith("the star is cyan by rollout on mini-vlm")
    settings = {"model": "mini-vlm", "method": "rollout", "units": "word"}
    library = explain_response((scene.image, question), **settings)
    assert_same(Response.load("page.npz"), library)
    write_lines(files / "pictures.jsonl", [{"prompt": question, "images": ["scene.png"], "response": answer}])
    run("response", "--batch", "pictures.jsonl", "--out", "d", "--format", "npz", *command[4:])
    assert_same(Response.load("d/000001.npz"), explain_response((scene.image, question), answer, **settings))
    write_lines(files / "bad.jsonl", [{"prompt": "x", "images": "scene.png"}, {"messages": [], "images": ["a"]}])
    result = invoke("response", "--batch", "bad.jsonl", "--out", "e", *command[4:])
    assert "line 1: \"images\" is a list of files, not 'scene.png'." in result.output
    assert 'line 2: "images" goes with "prompt"' in result.output
