"""`whyformer survey`: from a table to a report in one command."""

import csv
import json

import pytest

from commands import invoke
from whyformer import Survey

FILMS = [
    ("a wonderful film", "pos"),
    ("dull to the end", "neg"),
    ("wonderful, all of it", "pos"),
    ("a dull film", "neg"),
]


@pytest.fixture
def films(tmp_path):
    path = tmp_path / "films.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *FILMS * 8])
    return path


def run(*arguments):
    return invoke("survey", *arguments)


def test_a_table_becomes_a_report_with_its_files(films, tmp_path):
    (tmp_path / "ignore.txt").write_text("film\nnowhere\n")
    out = tmp_path / "report.html"
    done = run(
        *("mini-bert", films, "--out", out, "--label", "pos=positive", "--label", "neg=negative"),
        *("--should-ignore", tmp_path / "ignore.txt", "--method", "rollout", "--device", "cpu", "--pages", "3"),
    )
    assert done.exit_code == 0, done.output
    assert "mini-bert read 32 texts" in done.output
    result = Survey.load(tmp_path / "report.json")
    assert (result.samples, result.labelled, result.wrong, result.method) == (32, 32, 0, "rollout")
    assert any(driver.should_be_ignored and driver.cue.name == "film" for driver in result.tested)
    assert (tmp_path / "report.parquet").is_file()
    assert "wonderful" in out.read_text()
    pages = sorted((tmp_path / "report-samples").iterdir())
    assert 0 < len(pages) <= 3
    shown = {example.page for driver in result.tested for example in driver.examples} - {None}
    assert shown == {f"report-samples/{page.name}" for page in pages}
    (page, *_) = pages
    assert f'<a href="report-samples/{page.name}">films.csv row {page.stem}</a>' in out.read_text()
    assert FILMS[(int(page.stem) - 1) % 4][0].split()[0] in page.read_text()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert kinds.count("sample") == 32
    again = run(
        "mini-bert",
        films,
        "--out",
        out,
        "--label",
        "pos=positive",
        "--label",
        "neg=negative",
        "-q",
        "--method",
        "rollout",
        "--device",
        "cpu",
    )
    assert (again.exit_code, again.output) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini-bert", "nowhere.csv"], "No file or folder 'nowhere.csv'."),
        (["mini-bert", "FILMS", "--label", "pos"], "--label 'pos': write DATA=MODEL, such as pos=positive."),
        (["mini-bert", "FILMS", "--out", "report.pdf"], "--out 'report.pdf': no format for '.pdf'. Known: .html."),
        (
            ["mini-bert", "FILMS", "--should-ignore", "names.txt"],
            "No file 'names.txt' with cues to ignore. Name a cue in a list: ['names.txt'].",
        ),
        (
            ["mini-vit", "FILMS"],
            "mini-vit reads pictures, and the data are texts: give a folder of pictures or a list of PIL images.",
        ),
    ],
)
def test_a_mistake_is_said_in_one_line(films, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*[films if one == "FILMS" else one for one in arguments])
    assert done.exit_code == 2
    assert done.stderr == f"whyformer: {message}\n"


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_the_data_are_never_replaced(tmp_path, suffix):
    data = tmp_path / f"reviews{suffix}"
    rows = [{"text": text} for text, _ in FILMS]
    data.write_text("\n".join(map(json.dumps, rows)) if suffix == ".jsonl" else json.dumps(rows))
    before = data.read_bytes()
    done = run("mini-bert", data, "--out", tmp_path / "reviews.html")
    assert done.exit_code == 2
    assert f"would write to {str(data)!r}, which is read: name another report." in done.stderr
    assert data.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [data.name]


def test_workers_of_a_cluster_choose_their_own_device(films, tmp_path):
    for option in (("--device", "cpu"), ("--dtype", "float32")):
        done = run("mini-bert", films, "--out", tmp_path / "report.html", "--engine", "ray", *option)
        assert done.exit_code == 2, done.output
        assert "a worker on Ray loads the model on its own device" in done.output
