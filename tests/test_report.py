"""The report of a run: what it says is what the tables hold."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from test_run import SETTINGS, pets  # noqa: F401  (a fixture)
from test_run_protocols import documents  # noqa: F401  (a fixture)
from whyformer import WhyformerError
from whyformer.cli import app
from whyformer.evaluate.segmentation import mean_iou
from whyformer.evaluate.statistics import comparison, interval
from whyformer.run import differences, evaluate, report, suite_of
from whyformer.run.figures import half_of, measured, run_in
from whyformer.run.tables import parquet, read


@pytest.fixture(scope="module")
def shown(vit, pets, tmp_path_factory):  # noqa: F811
    """The folder of a reported run; a picture's name would break out of a careless page."""
    place = tmp_path_factory.mktemp("report")
    shutil.copytree(pets, place / "pets")
    for folder in ("images", "annotations/trimaps"):
        (place / "pets" / folder / "cat_3.png").rename(place / "pets" / folder / "cat_<b>3.png")
    (place / "pets" / "images" / "dog_0.png").write_bytes(b"no picture")
    document = {"model": str(vit), "data": {"reader": "oxford_pets", "folder": "pets"}, **SETTINGS, "samples": 8}
    document["protocols"] = [*SETTINGS["protocols"], "class_sensitivity"]
    out = evaluate(suite_of(document), place / "out", data=place, quiet=True)
    report(out)
    return out


def rows_of(folder, protocol, method, measure):
    wanted = (protocol, method, measure)
    found = [r for r in read(folder, "rows") if (r["protocol"], r["method"], r["measure"]) == wanted]
    return np.array([row["values"] for row in found]).squeeze()


def test_figures_are_those_of_the_tables_with_intervals_and_paired_tests(shown):
    document = json.loads((shown / "results.json").read_text())
    assert document["samples"] == 7
    assert list(document["errors"]) == ["dog_0"]
    table = document["protocols"][1]["tables"][0]
    assert table["figure"] == "mIoU"
    counts = {row["method"]: rows_of(shown, "segmentation", row["method"], "overlap") for row in table["rows"]}
    best = table["rows"][0]["method"]
    for row in table["rows"]:
        expected = interval(counts[row["method"]], mean_iou)
        assert [row["value"], row["low"], row["high"]] == [expected.value, expected.low, expected.high]
        assert row["samples"] == 7
        if row["method"] != best:
            tested = comparison(counts[row["method"]], counts[best], mean_iou)
            assert row["to_best"]["p"] == tested.p
            assert row["to_best"]["value"] == tested.difference.value
    assert [row["value"] for row in table["rows"]] == sorted((row["value"] for row in table["rows"]), reverse=True)
    assert len(table["pairs"]) == 10
    curve = document["protocols"][0]["curves"]["probability positive"]["random"]
    values = rows_of(shown, "image_perturbation", "random", "probability positive")
    np.testing.assert_allclose(curve["mean"], values.mean(axis=0))
    assert all(low <= mean <= high for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True))


def test_markdown_names_the_values_and_the_curves(shown):
    document, text = json.loads((shown / "results.json").read_text()), (shown / "report.md").read_text()
    first = document["protocols"][1]["tables"][0]["rows"][0]
    cell = f"| {first['method']} | **{100 * first['value']:.1f}** [{100 * first['low']:.1f}, {100 * first['high']:.1f}]"
    assert cell in text
    assert "7 samples, seed 0; " in text
    assert "1 could not be read" in text
    for name in re.findall(r"\]\((curves/[^)]+)\)", text):
        assert (shown / name).read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (shown / name).with_suffix(".svg").read_text()


def test_the_page_needs_nothing_else_and_escapes_what_it_shows(shown):
    page = (shown / "report.html").read_text()
    assert "<script" not in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "https:" not in page
    assert set(re.findall(r'src="([^:]+):', page)) == {"data"}
    assert "cat_&lt;b&gt;3" in page
    assert "cat_<b>3" not in page
    assert "Best and worst of" in page
    assert "Two classes of" in page
    assert "dog_0 was not read" in page
    for method in ("generic_attention", "rollout first_block=1", "random", "centre_prior", "edge_prior"):
        assert f'<th scope="row">{method}</th>' in page


def test_a_report_made_again_is_the_same(shown):
    names = ["report.html", "report.md", "results.json", "curves/image_perturbation-accuracy-positive.svg"]
    before = [(shown / name).read_bytes() for name in names]
    report(shown)
    assert [(shown / name).read_bytes() for name in names] == before


def test_words_that_people_marked_are_beside_the_maps(bert, documents, tmp_path):  # noqa: F811
    document = {
        "model": str(bert),
        "data": {"reader": "eraser", "folder": str(tmp_path)},
        "labels": {"POS": "good", "NEG": "bad"},
        "methods": ["rollout"],
        "protocols": ["rationales"],
        "shard": 2,
    }
    out = evaluate(suite_of(document), tmp_path / "out", quiet=True)
    (out / "rows" / "00001.parquet").unlink()
    (out / "samples" / "00001.parquet").unlink()
    report(out)
    page = (out / "report.html").read_text()
    assert '<th scope="col" dir="auto">people</th>' in page
    assert ">film</span>" in page
    assert "1 are still to be done" in (out / "report.md").read_text()


def test_from_the_command_line(vit, pets, tmp_path):  # noqa: F811
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'model = "{vit}"\nsamples = 2\nmethods = ["rollout"]\nprotocols = ["segmentation"]\n'
        '[data]\nreader = "oxford_pets"\nfolder = "pets"\n'
    )
    out = str(tmp_path / "out")
    done = CliRunner().invoke(app, ["evaluate", str(suite), "--out", out, "--data", str(pets.parent)])
    assert done.exit_code == 0, done.output
    assert "shard 0 done, 1 of 1" in done.stderr
    assert "`whyformer report" in done.stdout
    assert "could not be used" not in done.stderr
    copied = shutil.copytree(pets, tmp_path / "pets")
    for name in ("cat_1", "cat_3", "dog_2"):
        (copied / "images" / f"{name}.png").write_bytes(b"no picture")
    again = ["evaluate", str(suite), "--out", str(tmp_path / "other"), "--data", str(tmp_path)]
    suite.write_text(suite.read_text().replace("samples = 2", "samples = 8"))
    done = CliRunner().invoke(app, again)
    assert "3 of the samples could not be used: the report says why." in done.stderr
    done = CliRunner().invoke(app, ["report", out])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "report.html").is_file()
    suite.write_text("modle = 3")
    done = CliRunner().invoke(app, ["evaluate", str(suite), "--out", out])
    assert done.exit_code == 2
    assert "A suite has no 'modle'. Did you mean 'model'" in done.stderr
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert "holds no run" in done.stderr


def test_an_engine_that_does_not_exist_is_named(vit, tmp_path):
    document = {"model": str(vit), "data": {"reader": "scenes", "count": 1}, **SETTINGS}
    with pytest.raises(WhyformerError, match=r"engine='slurm'\. Choose from: local, ray"):
        evaluate(suite_of(document), tmp_path, engine="slurm")


def test_a_run_without_a_single_usable_sample_says_so(vit, pets, tmp_path):  # noqa: F811
    copied = shutil.copytree(pets, tmp_path / "pets")
    for path in (copied / "images").iterdir():
        path.write_bytes(b"no picture")
    document = {"model": str(vit), "data": {"reader": "oxford_pets", "folder": str(copied)}, **SETTINGS}
    out = evaluate(suite_of(document), tmp_path / "out", quiet=True)
    report(out)
    assert "0 samples, seed 0; 6 could not be read." in (out / "report.md").read_text()
    assert "is not an image that can be read" in (out / "report.html").read_text()


def test_halves_are_apart_and_the_same_in_every_suite(shown):
    whole = run_in(shown)
    first, second = whole.half("first"), whole.half("second")
    names = [{sample["name"] for sample in half.samples} for half in (first, second)]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {sample["name"] for sample in whole.samples}
    assert all(half_of(name) == "first" for name in names[0])
    assert len(first.rows) + len(second.rows) == len(whole.rows)
    page = report(shown, half="second")
    assert page == shown / "second" / "report.html"
    document = json.loads((page.parent / "results.json").read_text())
    assert document["samples"] == len(second.used)
    assert "the second half of the run" in (page.parent / "report.md").read_text()
    assert "still to be done" not in (page.parent / "report.md").read_text()
    with pytest.raises(WhyformerError, match="half='third'"):
        whole.half("third")


def test_two_runs_are_told_apart_by_their_ranks(shown, tmp_path):
    same = differences(shown, shown)
    assert same
    assert all(line.endswith(": identical") for line in same)
    other = shutil.copytree(shown, tmp_path / "other")
    run = run_in(shown)
    _, by_method = measured(run, run.choices[1], "mAP")
    best, worst = (pick(by_method, key=lambda m: np.mean(list(by_method[m].values()))) for pick in (max, min))
    for path in (other / "rows").iterdir():
        records = pq.read_table(path).to_pylist()
        swapped = {best: worst, worst: best}
        records = [r | {"method": swapped.get(r["method"], r["method"])} for r in records]
        path.write_bytes(parquet("rows", records))
    done = CliRunner().invoke(app, ["report", str(shown), "--against", str(other)])
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("segmentation, mAP"))
    assert f"{best} 1 → {len(by_method)}" in line
    assert f"{worst} {len(by_method)} → 1" in line


def test_runs_differ_by_the_figures_of_samples_not_by_their_pixels(shown, tmp_path):
    """One sample of one method loses all its right pixels: its accuracy falls from what it was to 0."""
    other = shutil.copytree(shown, tmp_path / "other")
    path, records = next(
        (path, records)
        for path in sorted((other / "rows").iterdir())
        for records in [pq.read_table(path).to_pylist()]
        if any(record["measure"] == "overlap" for record in records)
    )
    changed = next(record for record in records if record["measure"] == "overlap")
    accuracy = changed["values"][0] / changed["values"][1]
    changed["values"][0] = 0.0
    path.write_bytes(parquet("rows", records))
    name = next(sample["name"] for sample in read(shown, "samples") if sample["sample"] == changed["sample"])
    which = half_of(name)
    lines = dict(line.split(": ", 1) for line in differences(shown, other, half=which))
    assert lines["segmentation, mAP"] == "identical"
    assert lines["segmentation, pixel accuracy"].startswith(f"values differ by at most {accuracy:.1g}; ")
    apart = "second" if which == "first" else "first"
    done = CliRunner().invoke(app, ["report", str(shown), "--against", str(other), "--half", apart])
    assert done.exit_code == 0, done.output
    assert {line.rpartition(": ")[2] for line in done.stdout.splitlines()} == {"identical"}
