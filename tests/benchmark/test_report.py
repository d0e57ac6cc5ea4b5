"""The report of a run: what it says is what the tables hold."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.colors import to_hex
from PIL import Image
from test_protocols import documents  # noqa: F401  (a fixture)
from test_runner import SETTINGS, pets  # noqa: F401  (a fixture)
from typer.testing import CliRunner

from made_runs import forget_shard, make_old, record_digests
from publish import published
from whyformer import WhyformerError
from whyformer.benchmark import NoUsableSample, differences, make_suite, report, run_suite
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import half_of, read_run, sample_values, value_of
from whyformer.benchmark.reporting.charts import chart
from whyformer.benchmark.reporting.gallery import galleries, truth
from whyformer.benchmark.reporting.headline import headlines
from whyformer.benchmark.reporting.page import curves_of, figure_table, markdown, plain_text, unusable_notes
from whyformer.benchmark.tables import parquet, read_records
from whyformer.cli import app
from whyformer.data.generated import scenes
from whyformer.metrics.segmentation import mean_iou
from whyformer.metrics.statistics import interval, paired_comparison


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
    out = run_suite(make_suite(document), place / "out", data=place, quiet=True)
    report(out)
    return out


def rows_of(folder, protocol, method, measure):
    wanted = (protocol, method, measure)
    found = [r for r in read_records(folder, "rows") if (r["protocol"], r["method"], r["measure"]) == wanted]
    return np.array([row["values"] for row in found]).squeeze()


def test_figures_are_those_of_the_tables_with_intervals_and_paired_tests(shown):
    document = json.loads((shown / "results.json").read_text())
    assert document["samples"] == 7
    assert [sample["name"] for sample in document["errors"]] == ["dog_0"]
    figure_table = document["protocols"][1]["tables"][0]
    assert figure_table["figure"] == "mIoU"
    counts = {row["method"]: rows_of(shown, "segmentation", row["method"], "overlap") for row in figure_table["rows"]}
    best = figure_table["rows"][0]["method"]
    for row in figure_table["rows"]:
        expected = interval(counts[row["method"]], mean_iou)
        assert [row["value"], row["low"], row["high"]] == [expected.value, expected.low, expected.high]
        assert row["samples"] == 7
        if row["method"] != best:
            tested = paired_comparison(counts[row["method"]], counts[best], mean_iou)
            assert row["to_best"]["p"] == tested.p
            assert row["to_best"]["value"] == tested.difference.value
    assert [row["value"] for row in figure_table["rows"]] == sorted(
        (row["value"] for row in figure_table["rows"]), reverse=True
    )
    assert len(figure_table["pairs"]) == 10
    curve = document["protocols"][0]["curves"]["probability positive"]["random"]
    values = rows_of(shown, "image_perturbation", "random", "probability positive")
    np.testing.assert_allclose(curve["mean"], values.mean(axis=0))
    assert all(low <= mean <= high for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True))


def flat_curves(*methods):
    points = {"at": [0.0, 1.0], "mean": [1.0, 0.0], "low": [0.9, 0.0], "high": [1.0, 0.1]}
    return dict.fromkeys(methods, points)


def test_of_many_curves_the_best_and_the_control_have_bands_and_no_two_look_alike():
    names = [f"method {number}" for number in range(16)]
    axes = chart("accuracy", flat_curves(*names[:9], "random", *names[9:], "edge_prior")).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == [*names[:9], "random", *names[9:], "edge_prior"]
    looks = [(to_hex(line.get_color()), line.get_linestyle()) for line in lines.values()]
    assert len(set(looks)) == 18
    assert [lines[name].get_linestyle() for name in names[:4]] == ["-", "-", "-", "--"]
    assert lines[names[0]].get_zorder() > lines[names[1]].get_zorder()
    bands = [to_hex(band.get_facecolor()[0][:3]) for band in axes.collections]
    assert bands == [to_hex(lines[name].get_color()) for name in (*names[:3], "random")]


def test_of_few_curves_all_have_bands():
    axes = chart("accuracy", flat_curves("lrp", "rollout", "random")).axes[0]
    assert len(axes.collections) == 3
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-", ":"]


def test_curves_are_in_the_order_of_the_table():
    rows = [{"method": method} for method in ("lrp", "random", "rollout")]
    protocol = {"tables": [{"rows": rows}], "curves": {"accuracy": flat_curves("rollout", "lrp", "random"), "none": {}}}
    assert {measure: list(curves) for measure, curves in curves_of(protocol).items()} == {
        "accuracy": ["lrp", "random", "rollout"]
    }


@pytest.mark.parametrize(("better", "bold"), [("higher", [True, True, False]), ("neither", [False] * 3)])
def test_all_that_are_best_as_shown_are_bold(better, bold):
    values = {"lrp": 1.0, "rollout": 0.9999, "random": 0.998}
    rows = [{"method": method, "value": value, "low": value, "high": 1.0} for method, value in values.items()]
    one = {"figure": "mIoU", "better": better, "is_share": True, "rows": rows}
    _, cells = figure_table({"tables": [one]})
    assert [cell.startswith("**") for _, cell in cells] == bold
    assert [cell.replace("**", "").split()[0] for _, cell in cells] == ["100.0", "100.0", "99.8"]


def test_markdown_names_the_values_and_the_curves(shown):
    document, text = json.loads((shown / "results.json").read_text()), (shown / "report.md").read_text()
    first = document["protocols"][1]["tables"][0]["rows"][0]
    cell = f"| {first['method']} | **{100 * first['value']:.1f}** [{100 * first['low']:.1f}, {100 * first['high']:.1f}]"
    assert cell in text
    assert "7 samples, seed 0; " in text
    assert "1 could not be used" in text
    for name in re.findall(r"\]\((curves/[^)]+)\)", text):
        assert (shown / name).read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (shown / name).with_suffix(".svg").read_text()


def test_the_page_needs_nothing_else_and_escapes_what_it_shows(shown):
    page = (shown / "report.html").read_text()
    assert "<script" not in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "https:" not in page
    assert set(re.findall(r'src="([^:]+):', page)) == {"data"}
    assert "cat_<wbr>&lt;b&gt;3" in page
    assert not re.search("cat_(<wbr>)?<b>3", page)
    assert "Best and worst of" in page
    assert "Two classes of" in page
    assert "dog_0 could not be used: " in page
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
    out = run_suite(make_suite(document), tmp_path / "out", quiet=True)
    forget_shard(out, 1)
    report(out)
    page = (out / "report.html").read_text()
    assert '<th scope="col" dir="auto">people</th>' in page
    assert ">film</span>" in page
    assert "1 are still to be done" in (out / "report.md").read_text()


def test_the_truth_of_a_picture_is_its_mask(shown, pets):  # noqa: F811
    run, samples = read_run(shown), {sample["name"]: sample for sample in read_records(shown, "samples")}
    part = truth(run, samples["dog_2"]).parts["image"]
    trimap = np.array(Image.open(pets / "annotations" / "trimaps" / "dog_2.png"))
    strength = {1: 1.0, 2: 0.0, 3: 0.5}  # the pet, around it, and the border between them
    np.testing.assert_array_equal(part.scores.reshape(36, 40), np.vectorize(strength.get)(trimap))
    assert part.layout.box == (0, 0, 40, 36)
    page = (shown / "report.html").read_text()
    assert '<th scope="col" dir="auto">truth</th>' in page
    assert page.count('alt="The original image"') == page.count('<th scope="row" dir="auto">best: ') + page.count(
        '<th scope="row" dir="auto">worst: '
    )


def test_a_run_of_a_version_that_kept_no_masks_is_still_shown(shown, tmp_path):
    old = make_old(shutil.copytree(shown, tmp_path / "old"))
    paths = sorted((old / "samples").iterdir())
    for path in paths[1:]:
        pq.write_table(pq.read_table(path).drop_columns(["mask", "true_regions"]), path)
    report(old)
    assert '<th scope="col" dir="auto">truth</th>' in (old / "report.html").read_text()
    pq.write_table(pq.read_table(paths[0]).drop_columns(["mask", "true_regions"]), paths[0])
    report(old)
    page = (old / "report.html").read_text()
    assert '<th scope="col" dir="auto">truth</th>' not in page
    assert "Best and worst of" in page


def test_the_gallery_names_figures_and_writes_values_as_the_table_does(shown):
    run, document = read_run(shown), json.loads((shown / "results.json").read_text())
    by_protocol = dict(zip(["image_perturbation", "segmentation"], galleries(run, shown, document), strict=False))
    found = by_protocol["segmentation"]
    method = found.columns[1]
    assert found.title == f"Best and worst of {method} by mIoU (segmentation)"
    assert found.note.startswith("Of 7 samples; in brackets: mIoU.")
    _, by_method = sample_values(run, run.choices[1], "mIoU")
    values = sorted((mean_iou(counts[None]) for counts in by_method[method].values()), reverse=True)
    shown_values = [re.search(r"\(([\d.]+)\)$", row)[1] for row in found.rows]
    assert shown_values == [f"{100 * value:.1f}" for value in (*values[:3], *values[-3:])]


def test_the_truth_of_a_scene_is_the_regions_and_words_of_its_question(tmp_path):
    document = {"model": "mini-lxmert", "data": {"reader": "scenes", "count": 2}, "methods": ["rollout"]}
    out = run_suite(make_suite({**document, "protocols": ["localisation"]}), tmp_path / "out", quiet=True)
    run = read_run(out)
    for sample, scene in zip(read_records(out, "samples"), scenes(2), strict=True):
        found = truth(run, sample)
        assert found.answer == scene.answer
        np.testing.assert_array_equal(found.parts["regions"].scores, scene.question.things)
        np.testing.assert_array_equal(found.parts["text"].scores, scene.question.words)
        np.testing.assert_allclose(found.parts["regions"].layout.boxes, scene.regions.boxes)
    report(out)
    captions = re.findall(r"<h3>(\w+)</h3>", (out / "report.html").read_text())
    assert set(captions) == {"regions", "text"}


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
        run_suite(make_suite(document), tmp_path, engine="slurm")


def test_a_run_without_a_single_usable_sample_says_so(vit, pets, tmp_path):  # noqa: F811
    copied = shutil.copytree(pets, tmp_path / "pets")
    for path in (copied / "images").iterdir():
        path.write_bytes(b"no picture")
    document = {"model": str(vit), "data": {"reader": "oxford_pets", "folder": str(copied)}, **SETTINGS}
    said = r"^None of the 6 samples could be used: The file '.*\.png' is not an image that can be read\."
    with pytest.raises(NoUsableSample, match=said):
        run_suite(make_suite(document), tmp_path / "out", quiet=True)
    with pytest.raises(WhyformerError, match="holds no finished shard yet"):
        report(tmp_path / "out")
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'model = "{vit}"\nmethods = ["rollout"]\nprotocols = ["segmentation"]\n'
        f'[data]\nreader = "oxford_pets"\nfolder = "{copied}"\n'
    )
    done = CliRunner().invoke(app, ["evaluate", str(suite), "--out", str(tmp_path / "cli")])
    assert done.exit_code == 1
    assert re.search(r"^whyformer: None of the 8 samples could be used", done.stderr, re.MULTILINE)
    assert "Written" not in done.stdout


def test_a_single_sample_has_no_interval_and_its_report_is_still_json(vit, pets, tmp_path):  # noqa: F811
    document = {"model": str(vit), "data": {"reader": "oxford_pets", "folder": str(pets)}, **SETTINGS, "samples": 1}
    out = run_suite(make_suite(document), tmp_path / "out", quiet=True)
    report(out)

    def refused(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads((out / "results.json").read_text(), parse_constant=refused)
    text = (out / "report.md").read_text()
    for number, protocol in enumerate(found["protocols"]):
        for one in protocol["tables"]:
            for row in one["rows"]:
                name, method = SETTINGS["protocols"][number], row["method"]
                figure, values = sample_values(read_run(out), Choice(name, {}), one["figure"])
                assert row["value"] == value_of(figure, list(values[method].values()))
                assert [row["low"], row["high"], row.get("to_best")] == [None, None, None]
    row = found["protocols"][1]["tables"][0]["rows"][0]
    assert f"| {row['method']} | **{100 * row['value']:.1f}** [–, –] |" in text
    assert "nan" not in text


def test_samples_of_one_name_are_counted_one_by_one(vit, pets, tmp_path):  # noqa: F811
    copied = shutil.copytree(pets, tmp_path / "pets")
    for name in ("cat_1", "dog_2"):
        (copied / "images" / f"{name}.png").write_bytes(b"no picture")
    document = {"model": str(vit), "data": {"reader": "oxford_pets", "folder": str(copied)}, **SETTINGS, "samples": 8}
    out = run_suite(make_suite(document | {"protocols": ["segmentation"]}), tmp_path / "out", quiet=True)
    for path in (out / "samples").iterdir():
        records = pq.read_table(path).to_pylist()
        path.write_bytes(parquet("samples", [r | ({"name": "twin"} if r["error"] else {}) for r in records]))
    record_digests(out)
    report(out)
    text = (out / "report.md").read_text()
    assert "6 samples, seed 0; the model is right on" in text
    assert "; 2 could not be used." in text
    assert "still to be done" not in text
    assert re.findall(r"- twin could not be used: .*(cat_1|dog_2)", text) == ["cat_1", "dog_2"]
    assert (out / "report.html").read_text().count("twin could not be used: ") == 2
    found = published(read_run(out))
    assert (found["samples"], sum(found["unusable"].values()), found["unfinished"]) == (6, 2, 0)
    assert all("/" not in reason for reason in found["unusable"])  # where the data lie is nobody's business


def test_samples_with_one_reason_are_counted_together():
    mismatch = "No label named 'bird'. Known: cat, dog."
    errors = {f"bird_{number}": mismatch for number in range(7)}
    errors |= {name: f"The file '/pets/{name}.png' is not an image." for name in ("cat_1", "cat_2")}
    errors |= {"dog_1": "The file '/pets/dog_1.png' has no mask."}
    assert unusable_notes([{"name": name, "error": error} for name, error in errors.items()]) == [
        f"7 samples (bird_0, bird_1, bird_2, bird_3, bird_4 and 2 more) could not be used: {mismatch}",
        "2 samples (cat_1, cat_2) could not be used: The file '/pets/….png' is not an image.",
        "dog_1 could not be used: The file '/pets/dog_1.png' has no mask.",
    ]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("bird <b>&_1", r"bird \<b\>\&\_1"),
        ("rollout first_block=1", "rollout first_block=1"),
        ("__init__", r"\_\_init\_\_"),
        ("a|b *c* [d](e) `f` $g$ ~h~ i\\j", r"a\|b \*c\* \[d\](e) \`f\` \$g\$ \~h\~ i\\j"),
        ("two\nlines", "two↵lines"),
    ],
)
def test_markdown_shows_names_as_they_are(text, escaped):
    assert plain_text(text) == escaped


def test_markdown_of_a_careless_name_holds_no_markup(shown):
    document = json.loads((shown / "results.json").read_text())
    reason = "No label named 'bird <b>&'."
    document |= {"errors": [{"name": "bird <b>&_1", "error": reason}], "left_out": {"lrp": "It needs a <rule>."}}
    lines = markdown(document).splitlines()
    assert r"- bird \<b\>\&\_1 could not be used: No label named 'bird \<b\>\&'." in lines
    assert r"- lrp is left out: It needs a \<rule\>." in lines


def test_halves_are_apart_and_the_same_in_every_suite(shown):
    whole = read_run(shown)
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


@pytest.mark.parametrize("half", [None, "first", "second"])
def test_every_report_says_which_methods_are_left_out(levit, pets, tmp_path, half):  # noqa: F811
    document = {"model": str(levit), "data": {"reader": "oxford_pets", "folder": str(pets)}}
    document |= {"methods": ["bi_token", "grad_cam"], "protocols": ["segmentation"], "shard": 8}
    out = run_suite(make_suite(document), tmp_path / "out", quiet=True)
    (note,) = (row for row in read_records(out, "rows") if row["measure"] == "left out")
    assert note["method"] == "bi_token"
    place = report(out, half=half).parent
    assert json.loads((place / "results.json").read_text())["left_out"] == {"bi_token": note["text"]}
    assert plain_text(f"bi_token is left out: {note['text']}") in (place / "report.md").read_text()
    assert "bi_token is left out: " in (place / "report.html").read_text()


def test_two_runs_are_told_apart_by_their_ranks(shown, tmp_path):
    same = differences(shown, shown)
    assert same
    assert all(line.endswith(": identical") for line in same)
    other = shutil.copytree(shown, tmp_path / "other")
    run = read_run(shown)
    _, by_method = sample_values(run, run.choices[1], "mAP")
    best, worst = (pick(by_method, key=lambda m: np.mean(list(by_method[m].values()))) for pick in (max, min))
    for path in (other / "rows").iterdir():
        records = pq.read_table(path).to_pylist()
        swapped = {best: worst, worst: best}
        records = [r | {"method": swapped.get(r["method"], r["method"])} for r in records]
        path.write_bytes(parquet("rows", records))
    record_digests(other)
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
    record_digests(other)
    name = next(sample["name"] for sample in read_records(shown, "samples") if sample["sample"] == changed["sample"])
    which = half_of(name)
    lines = dict(line.split(": ", 1) for line in differences(shown, other, half=which))
    assert lines["segmentation, mAP"] == "identical"
    assert lines["segmentation, pixel accuracy"].startswith(f"values differ by at most {accuracy:.1g}; ")
    apart = "second" if which == "first" else "first"
    done = CliRunner().invoke(app, ["report", str(shown), "--against", str(other), "--half", apart])
    assert done.exit_code == 0, done.output
    assert {line.rpartition(": ")[2] for line in done.stdout.splitlines()} == {"identical"}


def one_protocol(rows, **about):
    table = {"figure": "positive AUC", "better": "lower", "is_share": True, "rows": rows, **about}
    return {"protocols": [{"protocol": "perturbation", "tables": [table]}]}


def compared(method, value, low, high, p):
    return {"method": method, "value": 0.5, "to_best": {"value": value, "low": low, "high": high, "p": p}}


def test_a_report_begins_with_what_was_found():
    better = one_protocol([{"method": "evidence"}, compared("rollout", 0.2, 0.15, 0.25, 0.001)])
    where = " (perturbation: positive AUC)."
    assert headlines(better) == ["evidence is better than rollout by 20.0 points [15.0, 25.0]" + where]
    higher = one_protocol(
        [{"method": "evidence"}, compared("rollout", -0.2, -0.25, -0.15, 0.001)], better="higher", is_share=False
    )
    assert headlines(higher) == ["evidence is better than rollout by 0.200 [0.150, 0.250]" + where]
    tied = one_protocol([{"method": "evidence"}, compared("lrp", 0.0, -0.1, 0.1, 0.9)])
    assert headlines(tied) == ["evidence is first, but not told apart from lrp" + where]
    few = one_protocol([{"method": "evidence"}, {"method": "lrp", "to_best": None}])
    assert headlines(few) == ["evidence is first, on too few samples for a test" + where]


def test_the_page_of_a_run_has_its_sentences_first_and_its_tables_folded(shown):
    document, page = json.loads((shown / "results.json").read_text()), (shown / "report.html").read_text()
    sentences = headlines(document)
    assert sentences
    assert all(sentence in (shown / "report.md").read_text().replace("\\", "") for sentence in sentences)
    assert page.index('class="lead"') < page.index("<details>") < page.index('class="figures">')
    assert page.count("<details>") == len(document["protocols"])
    assert re.search(r'<p class="made">Made on \d+ \w+ \d{4} by Whyformer\.</p>', page)
