"""The commands, from inside and as real processes."""

import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from commands import COMMAND, process, refusal, run
from conftest import save_noise
from whyformer import METHODS, Explanation, contrast, explain, load
from whyformer.cli import app
from whyformer.methods.registry import trace_methods


def test_a_picture_is_explained_in_the_terminal(vit, photo):
    assert run("explain", photo, "--model", vit) == f"{explain(photo, load(vit))}\n"


def test_a_text_is_explained_as_given_or_from_its_file(bert, tmp_path):
    (tmp_path / "review.txt").write_text("the film was not great")
    expected = f"{explain('the film was not great', load(bert))}\n"
    assert run("explain", "the film was not great", "--model", bert) == expected
    assert run("explain", tmp_path / "review.txt", "--model", bert) == expected


def test_methods_that_remove_units_are_known_by_name(bert):
    text = "the film was not great"
    expected = f"{explain(text, load(bert), method='occlusion', units='word')}\n"
    assert run("explain", text, "--model", bert, "--method", "occlusion", "--option", "units=word") == expected
    assert {"occlusion", "rise", "kernel_shap", "lime", "mask_regression"} <= {*run("methods").split()}


def test_noise_on_the_input_is_an_option_of_methods_that_read_gradients(bert):
    text, noise = "the film was not great", ("--option", "noise=0.2", "--option", "noise_samples=2")
    expected = f"{explain(text, load(bert), method='generic_attention', noise=0.2, noise_samples=2)}\n"
    assert run("explain", text, "--model", bert, "--method", "generic_attention", *noise) == expected
    assert expected != f"{explain(text, load(bert), method='generic_attention')}\n"
    assert "also have noise and noise_samples" in run("methods")


def test_a_text_longer_than_any_file_name_is_a_text(bert):
    text = "the film was great " * 30
    assert "overlapping chunks" in run("explain", text, "--model", bert)
    assert "overlapping chunks" not in run("explain", text, "--model", bert, "--truncate")


def test_a_word_that_is_also_a_folder_is_a_text(bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "film").mkdir()
    assert json.loads(run("explain", "film", "--model", bert, "--json"))["parts"]["text"]["tokens"] == ["film"]


def test_a_pair_of_texts_is_explained_together(bert):
    found = json.loads(run("explain", "the film", "--pair", "was great", "--model", bert, "--json"))
    assert found["parts"]["text"]["tokens"] == ["the", "film", "was", "great"]
    assert found["parts"]["text"]["segments"] == [0, 0, 1, 1]


def test_json_has_the_scores_of_the_library(vit, photo):
    expected = explain(photo, load(vit), 2, "bi_head", steps=3, feedback="gradient")
    options = ["--option", "steps=3", "--option", "feedback=gradient"]
    found = json.loads(
        run("explain", photo, "--model", vit, "--target", "Bird", "--method", "bi_head", *options, "--json")
    )
    assert found["input"] == str(photo)
    assert (found["target"], found["method"], found["model"]) == ("bird", "bi_head", "tiny-vit")
    assert found["probability"] == expected.probability
    assert found["options"] == dict(expected.options)
    part = found["parts"]["image"]
    assert (part["rows"], part["columns"], part["box"]) == (4, 4, [0, 0, 60, 40])
    assert part["scores"] == expected.scores.tolist()
    assert part["tokens"] == list(expected.tokens)


@pytest.mark.parametrize("target", ["1", "dog", "DOG"])
def test_a_label_goes_by_its_name_or_index(vit, photo, target):
    found = json.loads(run("explain", photo, "--model", vit, "--target", target, "--json"))
    assert found["target"] == "dog"


def test_a_label_is_explained_against_another(vit, photo):
    found = json.loads(run("explain", photo, "--model", vit, "--target", "cat", "--rather-than", 1, "--json"))
    assert found["target"] == "cat rather than dog"
    expected = explain(photo, load(vit), contrast("cat", "dog")).scores
    np.testing.assert_allclose(found["parts"]["image"]["scores"], expected, rtol=1e-6)
    predicted = explain(photo, load(vit)).target
    other = next(name for name in ("dog", "bird") if name != predicted)
    found = json.loads(run("explain", photo, "--model", vit, "--rather-than", other, "--json"))
    assert found["target"] == f"{predicted} rather than {other}"
    assert found["probability"] is None
    refused = CliRunner().invoke(
        app, ["explain", str(photo), "--model", str(vit), "--target", "dog", "--rather-than", "dog"]
    )
    assert refused.exit_code == 2
    assert "names the same label twice" in refused.stderr


def test_a_number_asked_of_a_model_that_writes_is_a_token_and_said_to_be_one(tmp_path):
    arguments = ["explain", "The film was", "--model", "mini-gpt", "--method", "raw_attention", "--target", "500"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    expected = explain("The film was", "mini-gpt", 500, "raw_attention")
    assert json.loads(result.stdout)["target"] == expected.target
    assert result.stderr == f"500 is read as the id of a token: {expected.target!r}.\n"
    methods = ["--method", "raw_attention", "--method", "rollout"]
    out = ["--model", "mini-gpt", "--target", "500", "--out", str(tmp_path / "c.html")]
    assert CliRunner().invoke(app, ["compare", "The film was", *methods, *out]).stderr == result.stderr


def test_help_says_what_each_kind_of_model_takes():
    for command in ("explain", "compare"):
        words = " ".join(run(command, "--help").replace("│", " ").split())
        for said in (".npz file of a picture's regions", "a detected label", "several --text, one", "a token id"):
            assert said in words


def test_a_switch_of_a_method_is_read_as_true_or_false(vit, photo):
    command = ["explain", photo, "--model", vit, "--method", "rollout", "--json", "--option"]
    for text, value in {"true": True, "False": False}.items():
        assert json.loads(run(*command, f"normalise_rows={text}"))["options"]["normalise_rows"] is value


@pytest.mark.parametrize("suffix", ["html", "png", "json", "npz"])
def test_an_explanation_is_written_in_every_format(vit, photo, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    assert run("explain", photo, "--model", vit, "--out", out).endswith(f"Written to {out}\n")
    if suffix in ("json", "npz"):
        assert Explanation.load(out) == explain(photo, load(vit))
    else:
        model = load(vit)
        explain(photo, model).save(tmp_path / f"expected.{suffix}")
        assert out.read_bytes() == (tmp_path / f"expected.{suffix}").read_bytes()


def test_with_json_the_file_is_announced_elsewhere(vit, photo, tmp_path):
    result = CliRunner().invoke(
        app, ["explain", str(photo), "--model", str(vit), "--json", "--out", str(tmp_path / "a.png")]
    )
    assert json.loads(result.stdout)["model"] == "tiny-vit"
    assert result.stderr == f"Written to {tmp_path / 'a.png'}\n"


@pytest.fixture
def photos(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    names = ["one/a.png", "one/b.png", "two/a.png"]
    return [save_noise(tmp_path / name, seed) for seed, name in enumerate(names)]


def test_several_pictures_are_explained_in_their_order(vit, photos):
    lines = run("explain", *photos, "--model", vit, "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["input"] for one in found] == [str(photo) for photo in photos]
    for one, photo in zip(found, photos, strict=True):
        np.testing.assert_allclose(one["parts"]["image"]["scores"], explain(photo, load(vit)).scores, rtol=1e-4)


def test_several_pictures_fill_a_folder_that_is_made(vit, photos, tmp_path):
    out = tmp_path / "new" / "folder"
    printed = run("explain", *photos, "--model", vit, "--out", out)
    assert sorted(file.name for file in out.iterdir()) == ["a-2.html", "a.html", "b.html"]
    assert [line for line in printed.splitlines() if line in map(str, photos)] == [str(photo) for photo in photos]


def test_a_report_names_its_inputs(vit, photos, tmp_path):
    run("explain", *photos, "--model", vit, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(f"{photo.stem}: " in page for photo in photos)


def test_one_picture_goes_into_a_folder_that_is_there(vit, photo, tmp_path):
    (tmp_path / "pages").mkdir()
    run("explain", photo, "--model", vit, "--out", tmp_path / "pages")
    assert [file.name for file in (tmp_path / "pages").iterdir()] == [f"{photo.stem}.html"]


def test_several_texts_make_one_report(bert, tmp_path):
    run("explain", "the film was great", "the film was bad", "--model", bert, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert page.index("great") < page.index(">bad")


@pytest.fixture
def grids(monkeypatch):
    """The tables of explanations handed to the renderer."""
    handed = []
    html = importlib.import_module("whyformer.render.html")
    drawn = html.comparison_page

    def comparison(rows, *titles, **settings):
        handed.append((rows, *titles))
        return drawn(rows, *titles, **settings)

    monkeypatch.setattr(html, "comparison_page", comparison)
    return handed


def test_methods_are_compared_in_the_current_folder(vit, photo, tmp_path, monkeypatch, grids):
    monkeypatch.chdir(tmp_path)
    assert run("compare", photo, "--model", vit) == "Written to comparison.html\n"
    ((rows, titles, columns, title),) = grids
    assert columns == ["evidence (default)", *(name for name in trace_methods() if name != "evidence")]
    assert titles == [explain(photo, load(vit)).target]
    assert title == str(photo)
    assert rows[0][0] == explain(photo, load(vit))
    assert rows[0][0].method == "evidence"
    assert "default</figcaption>" not in Path("comparison.html").read_text(encoding="utf-8")
    for name, cell in zip(columns[1:], rows[0][1:], strict=True):
        assert cell == explain(photo, load(vit), method=name)
    assert "bi_token" in Path("comparison.html").read_text(encoding="utf-8")


def test_targets_and_models_make_a_grid(vit, levit, photo, tmp_path, grids):
    methods = ["--method", "grad_cam", "--method", "raw_attention"]
    targets = ["--target", "cat", "--target", "3"]
    run("compare", photo, *methods, *targets, "--model", vit, "--model", levit, "--out", tmp_path / "grid.html")
    ((rows, titles, columns, _),) = grids
    assert columns == ["grad_cam", "raw_attention"]
    assert titles == ["cat · tiny-vit", "fish · tiny-vit", "cat · tiny-levit", "fish · tiny-levit"]
    assert [[(cell.target, cell.model, cell.method) for cell in row] for row in rows] == [
        [(target, model, method) for method in columns]
        for model in ("tiny-vit", "tiny-levit")
        for target in ("cat", "fish")
    ]


def test_a_method_that_does_not_apply_is_left_out_with_a_note(vit, levit, photo, tmp_path, grids):
    printed = run("compare", photo, "--model", levit, "--out", tmp_path / "one.html")
    assert "Left out: bi_token on tiny-levit: bi_token needs the residual state" in printed
    run("compare", photo, "--model", levit, "--model", vit, "--out", tmp_path / "two.html")
    (_, _, alone, _), (rows, _, both, _) = grids
    assert "bi_token" not in alone
    assert {"raw_attention", "grad_cam"} <= set(alone)
    assert set(both) >= {*trace_methods()} - {"evidence"}
    assert rows[0][both.index("bi_token")] is None
    assert rows[1][both.index("bi_token")].model == "tiny-vit"


def test_a_model_without_attention_has_a_row_of_the_methods_that_read_inputs(vit, resnet, photo, tmp_path, grids):
    printed = run("compare", photo, "--model", resnet, "--model", vit, "--out", tmp_path / "c.html")
    of_inputs = {name for name, method in trace_methods().items() if method.reads.inputs != "none"}
    assert of_inputs == {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}
    assert printed.count("Left out: ") == len(trace_methods()) - len(of_inputs)
    ((rows, titles, _, _),) = grids
    assert [title.rpartition(" · ")[2] for title in titles] == ["tiny-resnet", "tiny-vit"]
    assert [{cell.method for cell in row if cell is not None} >= of_inputs for row in rows] == [True, True]


def test_a_method_asked_for_by_name_must_apply(levit, photo, tmp_path):
    arguments = ["compare", photo, "--model", levit, "--method", "bi_token", "--out", tmp_path / "c.html"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "c.html").exists()


def test_a_comparison_is_drawn_as_a_picture(bert, tmp_path):
    run("compare", "the film was great", "--model", bert, "--out", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert 1500 < picture.width < 2000  # the methods go on below
        assert picture.height > 600


def test_methods_are_listed_with_their_options(monkeypatch):
    found = {method["name"]: method for method in json.loads(run("methods", "--json"))}
    assert sorted(found) == sorted(METHODS)
    assert found["tam"]["reads"] == "logits"
    assert found["rollout"]["options"] == {"first_block": 0, "normalise_rows": False, "cross": "flow"}
    assert found["rollout"]["reads"] == "maps"
    assert found["rise"]["kinds"] == ["example", "response", "function"]
    assert found["grad_cam"]["summary"] == trace_methods()["grad_cam"].summary
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("methods").splitlines()
    for name in trace_methods():
        assert name in lines
    assert max(map(len, lines)) <= 80
    start = lines.index("rollout")
    assert lines[start + 2].split() == ["TA", "Eq.", "15-16)."]
    assert lines[start + 3].split() == ["reads", "maps"]
    assert lines[start + 4].split() == ["for", "example,", "response"]
    assert lines[start + 5].split() == ["options", "first_block=0", "normalise_rows=False", "cross=flow"]


def test_bundled_models_are_listed_from_their_cards(vit, bert, tmp_path, monkeypatch):
    monkeypatch.setattr("whyformer.models.zoo.ZOO", tmp_path)
    assert run("models") == "No model is bundled: give --model a folder or a Hugging Face id.\n"
    assert json.loads(run("models", "--json")) == []
    shutil.copytree(vit, tmp_path / "mini-vit")
    shutil.copytree(bert, tmp_path / "mini-bert")
    card = "---\nlicense: mit\n---\n# Mini ViT\n\nTells [four] animals\napart. Was trained by nobody.\n\n"
    card += "| | |\n| --- | --- |\n| data | a zoo |\n\n<!-- mini-vit -->\n| measured | |\n| --- | --- |\n"
    card += "| accuracy | 9 % |\n<!-- /mini-vit -->\n\n## Licence\n\nFree. Entirely.\n"
    (tmp_path / "mini-vit" / "README.md").write_text(card)
    found = json.loads(run("models", "--json"))
    assert [model["name"] for model in found] == ["mini-bert", "mini-vit"]
    assert found[1] == {
        "name": "mini-vit",
        "task": "labels a picture",
        "class": "ViTForImageClassification",
        "labels": ["cat", "dog", "bird", "fish"],
        "data": "a zoo",
        "measured": {"accuracy": "9 %"},
        "megabytes": (vit / "model.safetensors").stat().st_size / 1e6,
        "licence": "Free.",
        "about": "Tells [four] animals apart.",
    }
    assert (found[0]["task"], found[0]["about"]) == ("labels a text", "")
    size = found[1]["megabytes"]
    assert " ".join(run("models").split()).endswith(
        f"mini-vit labels a picture · ViTForImageClassification, {size:.1f} MB Tells [four] animals apart. "
        "labels cat, dog, bird, fish "
        "`whyformer models --json` also lists training data, measurements and licences."
    )


def test_without_arguments_help_is_shown():
    for arguments in ([], ["--help"]):
        printed = run(*arguments)
        for command in ("explain", "compare", "methods", "models", "doctor"):
            assert command in printed


def test_the_version_is_that_of_the_package():
    assert run("--version") == f"whyformer {importlib.metadata.version('whyformer')}\n"


def test_a_misspelt_command_is_met_with_the_nearest(tmp_path):
    result = CliRunner().invoke(app, ["explan"])
    assert result.exit_code == 2
    assert result.stderr == "whyformer: No such command 'explan'. Did you mean 'explain'?\n"


def test_an_interrupt_is_one_line(vit, photo, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("whyformer.api.explain.explain_batch", interrupted)
    out = tmp_path / "out.html"
    result = CliRunner().invoke(app, ["explain", str(photo), "--model", str(vit), "--out", str(out)])
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "whyformer: stopped.\n")
    assert not out.exists()


def test_a_real_process_prints_json_and_nothing_else(bert):
    result = process("explain", "the film was great", "--model", bert, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    scores = json.loads(result.stdout)["parts"]["text"]["scores"]
    assert scores == pytest.approx(explain("the film was great", load(bert)).scores.tolist(), rel=1e-4)


def test_a_real_process_ends_in_one_line_and_two(tmp_path):
    result = process("explain", "nowhere.png", "--model", "no/such/model", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("whyformer: No model 'no/such/model'")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_without_block_characters_gets_question_marks(vit, photo):
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    result = process("explain", photo, "--model", vit, "--method", "rollout", env=environment, encoding="latin-1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "by rollout on tiny-vit" in result.stdout
    assert "????" in result.stdout


@pytest.mark.skipif(os.name != "posix", reason="pipes of this kind")
def test_a_reader_that_leaves_is_not_complained_about():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        result = subprocess.run([*COMMAND, "methods", "--json"], stdout=gone, stderr=subprocess.PIPE, timeout=600)
    assert result.stderr == b""
    assert result.returncode == 1


def test_an_advice_is_printed_saved_and_given_as_json(tmp_path):
    table = tmp_path / "films.csv"
    table.write_text("text,label\na wonderful film,positive\na dull film,negative\n")
    command = ("recommend", "mini-bert", "--data", table, "--method", "rollout", "--method", "bi_token backward=libra")
    page = tmp_path / "advice.html"
    shown = run(*command, "--json", "--out", page)
    document = json.loads(shown)
    assert document["samples"] == 2
    assert {one["label"] for one in document["contenders"]} == {"rollout", "bi_token backward=libra", "random"}
    assert document["verdict"][0].startswith("A hint, no more")
    assert "Which method for mini-bert?" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini-bert"], "No data: give --data, a folder of pictures or a table of texts"),
        (["mini-bert", "--reader", "scenes", "--data", "."], "scenes does not read files: leave --data out."),
        (["mini-bert", "--data", ".", "--label", "x"], "--label 'x': write NAME=VALUE."),
        (["mini-bert", "--data", ".", "--out", "x.pdf"], "--out 'x.pdf': no format for '.pdf'. Known: .html, .json."),
        (["mini-bert", "--reader", "sceens"], "No reader named 'sceens'. Did you mean 'scenes'"),
    ],
)
def test_an_advice_that_cannot_be_given_is_refused_in_one_line(arguments, message):
    assert message in refusal("recommend", *arguments)
