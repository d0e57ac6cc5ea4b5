"""Inputs as they are typed: folders, pipes, names that try to drive the terminal; and where the results go."""

import json
import os
import shlex
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image

from commands import invoke, refusal, run
from conftest import save_noise
from whyformer import Explanation, explain, load
from whyformer.cli import input_sources
from whyformer.cli import inputs as cli_inputs
from whyformer.files import IMAGE_SUFFIXES
from whyformer.scenes import example

POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes of this kind")


def scores(printed):
    return json.loads(printed)["parts"]


@pytest.fixture
def folder(tmp_path):
    """Three pictures, a text and a hidden picture."""
    place = tmp_path / "photos"
    place.mkdir()
    for seed, name in enumerate(["b.png", "a.PNG", "c.jpg", ".hidden.png"]):
        save_noise(place / name, seed)
    (place / "notes.txt").write_text("the film was great")
    return place


def test_a_folder_is_its_pictures_sorted_by_name(vit, folder):
    result = invoke("explain", folder, "--model", vit, "--json")
    assert result.stderr == f"{folder}: 3 pictures, 1 other file left out.\n"
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [document["input"] for document in documents] == [str(folder / name) for name in ("a.PNG", "b.png", "c.jpg")]
    expected = explain(folder / "b.png", load(vit)).scores
    np.testing.assert_allclose(documents[1]["parts"]["image"]["scores"], expected, rtol=1e-4)


def test_a_folder_is_its_texts_where_the_model_reads(bert, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ("photos", f"{folder}{os.sep}"):
        result = invoke("explain", given, "--model", bert, "--json")
        assert result.stderr == f"{given}: 1 text, 3 other files left out.\n"
        assert scores(result.stdout)["text"]["tokens"] == ["the", "film", "was", "great"]


def test_a_folder_with_too_many_files_is_refused(vit, folder, monkeypatch):
    monkeypatch.setattr(input_sources, "MOST_FOLDER_FILES", 2)
    line = refusal("explain", folder, "--model", vit)
    assert line.startswith(f"The folder '{folder}' has 3 pictures, more than the limit of 2")
    assert line.endswith(f"name some of them, such as {folder / 'a*'}.")


def test_quiet_prints_nothing_but_json(vit, folder, tmp_path):
    assert run("explain", folder, "--model", vit, "--quiet", "--out", tmp_path / "pages") == ""
    assert len(list((tmp_path / "pages").iterdir())) == 3
    assert len(run("explain", folder, "--model", vit, "--quiet", "--json").splitlines()) == 3


@pytest.mark.parametrize("format", ["png", "json", "npz"])
def test_several_inputs_are_written_to_a_folder_in_any_format(vit, folder, tmp_path, format):
    out = tmp_path / "results"
    run("explain", folder, "--model", vit, "--out", out, "--format", format, "--quiet")
    assert sorted(file.name for file in out.iterdir()) == [f"{name}.{format}" for name in "abc"]
    if format != "png":
        found = Explanation.load(out / f"b.{format}")
        np.testing.assert_allclose(found.scores, explain(folder / "b.png", load(vit)).scores, rtol=1e-4)
    else:
        with Image.open(out / "b.png") as picture:
            assert picture.width > 100


def test_a_folder_of_one_picture_still_goes_to_a_folder(vit, tmp_path, photo):
    (tmp_path / "one").mkdir()
    photo.rename(tmp_path / "one" / "photo.png")
    run("explain", tmp_path / "one", "--model", vit, "--out", tmp_path / "pages", "--quiet")
    assert [file.name for file in (tmp_path / "pages").iterdir()] == ["photo.html"]


def test_formats_that_fit_no_output_are_refused(vit, photo, tmp_path):
    line = refusal("explain", photo, photo, "--model", vit, "--out", tmp_path / "all.json")
    assert line.endswith(f"For a folder: --out '{tmp_path / 'all'}' --format json.")
    line = refusal("explain", photo, "--model", vit, "--out", tmp_path / "a.html", "--format", "png")
    assert "is one file, but --format png applies to files in a folder: leave one out." in line
    line = refusal("explain", photo, "--model", vit, "--format", "png")
    assert line == "--format png applies to the files in a folder: name the folder with --out."


def test_a_report_of_several_is_titled_by_what_it_shows(vit, folder, tmp_path):
    run("explain", folder, "--model", vit, "--method", "rollout", "--out", tmp_path / "report.html", "--quiet")
    assert "<title>3 explanations by rollout on tiny-vit</title>" in (tmp_path / "report.html").read_text()


def test_batches_of_any_size_give_the_same(vit, folder):
    one, all_at_once = (
        run("explain", folder, "--model", vit, "--json", "--quiet", "--batch-size", size).splitlines()
        for size in (1, 3)
    )
    for first, second in zip(one, all_at_once, strict=True):
        np.testing.assert_allclose(scores(first)["image"]["scores"], scores(second)["image"]["scores"], rtol=1e-4)
    assert "Invalid value for '--batch-size'" in refusal("explain", folder, "--batch-size", 0)


def test_a_text_comes_from_standard_input(bert):
    for given in ("-", "/dev/stdin"):
        found = run("explain", given, "--model", bert, "--json", input="the film was great\n")
        assert scores(found)["text"]["tokens"] == ["the", "film", "was", "great"]
    assert json.loads(found)["input"] == "/dev/stdin"


def test_a_picture_comes_from_standard_input(vit, photo, tmp_path):
    content = photo.read_bytes()
    found = run("explain", "-", "--model", vit, "--json", input=content)
    assert scores(found)["image"]["scores"] == explain(photo, load(vit)).scores.tolist()
    run("explain", "-", "--model", vit, "--quiet", "--out", tmp_path / "pages.html", input=content)
    (tmp_path / "pages").mkdir()
    run("explain", "-", "--model", vit, "--quiet", "--out", tmp_path / "pages", input=content)
    assert [file.name for file in (tmp_path / "pages").iterdir()] == ["stdin.html"]


def test_regions_come_from_standard_input(tmp_path):
    scene = example(3)
    scene.regions.save(tmp_path / "scene.npz")
    arguments = ["--model", "mini-lxmert", "--text", scene.question, "--method", "raw_attention", "--json"]
    piped = run("explain", "-", *arguments, input=(tmp_path / "scene.npz").read_bytes())
    assert scores(piped) == scores(run("explain", tmp_path / "scene.npz", *arguments))
    line = refusal("explain", "-", *arguments, input=b"no archive")
    assert line.startswith("'standard input' holds no regions")


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ("mini-vlm", "its question by --text, such as --text 'what colour is it?'"),
        ("mini-lxmert", "its question by --text, such as --text 'what colour is it?'"),
        ("mini-clip", "the text to compare it with by --text, such as --text 'a photo of a cat'"),
    ],
)
def test_a_picture_without_its_text_is_told_what_that_is(photo, model, missing):
    assert refusal("explain", photo, "--model", model) == f"{model} reads pictures with text: add {missing}."


def test_a_text_goes_on_from_standard_input():
    arguments = ["--model", "mini-gpt", "--tokens", 2, "--method", "raw_attention"]
    assert run("continue", "-", *arguments, input="The film was") == run("continue", "The film was", *arguments)


def test_standard_input_of_the_wrong_kind_is_refused(vit, bert, photo):
    line = refusal("explain", "-", "--model", bert, input=photo.read_bytes())
    assert line == "Standard input is a picture, but tiny-bert reads texts: choose another with --model."
    line = refusal("explain", "-", "--model", vit, input="the film was great")
    assert line == "The file 'standard input' is not an image that can be read."
    assert refusal("explain", "-", "--model", bert, input="") == "Standard input is empty: there is nothing to explain."
    line = refusal("explain", "-", "--model", bert, input=b"caf\xe9")
    assert line == "Standard input is not UTF-8 text (byte 3): convert it first."
    assert refusal("explain", "-", "-", "--model", bert, input="a") == "Standard input can be read once: give - once."


def test_standard_input_is_bounded(bert, monkeypatch):
    monkeypatch.setattr(cli_inputs, "MOST_PIPED_BYTES", 1 << 20)
    line = refusal("explain", "-", "--model", bert, input="a" * (1 << 20) + "b")
    assert line == "Standard input has more than 1 MiB: save it to a file and give that."


@POSIX
def test_process_substitution_gives_a_picture_or_a_text(vit, bert, photo):
    for model, content, part in ((vit, f"cat {photo}", "image"), (bert, "echo the film was great", "text")):
        with subprocess.Popen(shlex.split(content), stdout=subprocess.PIPE) as source:
            shown = run("explain", f"/dev/fd/{source.stdout.fileno()}", "--model", model, "--json")  # bash's <(…)
        assert list(scores(shown)) == [part]


@POSIX
def test_a_pipe_is_read_once_for_several_models(vit, photo, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[photo.read_bytes()])
    writer.start()
    models = ["--model", vit, "--model", vit, "--method", "raw_attention"]
    lines = run("compare", tmp_path / "pipe", *models, "--json").splitlines()
    writer.join()
    assert len(lines) == 2
    assert scores(lines[0]) == scores(lines[1])


EVIL = "evil\x1b]0;PWNED\x07\u202egnp.png"


@POSIX
def test_a_name_with_escape_codes_does_not_reach_the_terminal(vit, bert, tmp_path, photo):
    evil = tmp_path / EVIL
    photo.rename(evil)
    (tmp_path / "evil\x1b[2J").mkdir()
    save_noise(tmp_path / "evil\x1b[2J" / "\x9b31m.png")
    commands = [
        ["explain", evil, evil, "--model", vit],
        ["explain", tmp_path / "evil\x1b[2J", tmp_path / "evil\x1b[2J", "--model", vit],
        ["explain", evil, "--model", vit, "--out", tmp_path / "\x1b[31mout.html"],
        ["explain", evil, "--model", vit, "--out", tmp_path / "\x1b[31mout.pdf"],
        ["explain", evil, "--model", bert],
        ["explain", evil, "--model", evil],
        ["explain", tmp_path / f"no{EVIL}", "--model", vit],
        ["explain", evil, "--model", vit, "--method", "\x1b[31m"],
        ["explain", evil, "--model", vit, "--target", "\x1b[31m"],
        ["explain", evil, "--\x1b[31m"],
        ["\x1b[31m"],
        ["compare", evil, "--model", vit, "--method", "rollout", "--out", tmp_path / "\x1b[31mc.html"],
        ["doctor", evil],
        ["methods", "--plugin", tmp_path / f"no{EVIL}.py"],
        ["evaluate", tmp_path / f"no{EVIL}.toml", "--out", tmp_path / "r"],
        ["report", tmp_path / f"no{EVIL}"],
    ]
    for command in commands:
        output = invoke(*command).output
        assert output
        assert not set(output) & {"\x1b", "\x07", "\x9b", "\u202e"}, command
    assert "evil␛]0;PWNED␇�gnp.png" in invoke(*commands[0]).stdout


def test_a_model_whose_folder_has_escape_codes_is_shown_safely(vit, photo, copy_of):
    folder = copy_of(vit, "model\x1b[31m")
    for command in (
        ["explain", photo, "--model", folder],
        ["doctor", folder],
        ["compare", photo, "--model", folder, "-q"],
    ):
        assert "\x1b" not in invoke(*command).output


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "auto"])
def test_a_model_is_loaded_in_the_precision_and_on_the_device_that_are_named(vit, dtype):
    document = json.loads(invoke("doctor", vit, "--dtype", dtype, "--device", "cpu", "--json").stdout)
    assert document["precision"] == {"auto": "float32"}.get(dtype, dtype)


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_is_not_there_is_named(vit, photo, device):
    line = refusal("explain", photo, "--model", vit, "--device", device)
    assert line.startswith(f"--device '{device}': this machine has cpu")
    assert "'float8' is not one of" in refusal("explain", photo, "--dtype", "float8")


def test_an_option_that_may_be_none_is_read_as_a_number(bert):
    command = ["explain", "the film", "--model", bert, "--method", "integrated_gradients", "--json", "--option"]
    assert json.loads(run(*command, "steps=3"))["options"]["steps"] == 3
    assert json.loads(run(*command, "steps=none"))["options"]["steps"] is None


def test_default_is_a_name_of_a_method(bert):
    assert run("explain", "the film", "--model", bert, "--method", "default") == run(
        "explain", "the film", "--model", bert
    )


def test_every_option_has_help():
    from typer.main import get_command

    from whyformer.cli import app

    for name, command in get_command(app).commands.items():
        assert command.help, name
        assert "Examples:" in command.epilog, name
        assert "src/" not in command.epilog, f"{name}: an example that works in a checkout alone"
        options = {parameter.name: parameter for parameter in command.params}
        assert ("--json" in options.get("quiet", command).help) == ({"quiet", "as_json"} <= options.keys()), name
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"
            takes_no_value = getattr(parameter, "is_flag", False)
            assert not takes_no_value or parameter.metavar == "", f"{name}: help shows a value behind {parameter.name}"


def test_the_suffixes_of_pictures_are_those_that_can_be_read():
    Image.init()
    assert set(Image.registered_extensions()) >= IMAGE_SUFFIXES


def test_words_are_coloured_or_the_tokens_that_the_model_reads(bert, tmp_path):
    pages, model = {}, load(bert)
    for units in ("word", "token"):
        command = ["explain", "the film was badly great", "--model", bert, "--units", units]
        run(*command, "--quiet", "--out", tmp_path / f"{units}.html")
        explain("the film was badly great", model).save(tmp_path / f"expected-{units}.html", units=units)
        pages[units] = (tmp_path / f"{units}.html").read_text()
        assert pages[units] == (tmp_path / f"expected-{units}.html").read_text()
    assert pages["word"] != pages["token"]
    assert "'letter' is not one of 'word', 'token'" in refusal("explain", "the film", "--units", "letter")
