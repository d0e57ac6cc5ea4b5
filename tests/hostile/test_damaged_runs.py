"""Run folders that were damaged, and runs that go on with other plugins, data or another version."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from made_runs import forget_shard, make_old
from whyformer import WhyformerError, evaluate
from whyformer.benchmark import report, run_digests
from whyformer.benchmark.tables import TABLES
from whyformer.cli import app
from whyformer.methods.registry import METHODS

FILMS = ["the film was great", "the film was bad", "a great film", "a bad film", "great"]
LABELS = ["good", "bad", "good", "bad", "good"]
SUITE = """
model = "{model}"
shard = 2
methods = ["rollout"]
protocols = ["class_sensitivity"]
[data]
reader = "table"
path = "films.csv"
"""


@pytest.fixture(scope="module")
def finished(bert, tmp_path_factory):
    """A folder with a suite, its data, and the finished run of three shards with its report."""
    place = tmp_path_factory.mktemp("runs")
    rows = [f"{text},{label}" for text, label in zip(FILMS, LABELS, strict=True)]
    (place / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (place / "suite.toml").write_text(SUITE.format(model=bert))
    assert run_again(place).exit_code == 0
    report(place / "out")
    return place


@pytest.fixture
def place(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "place"))


def run_again(place, *arguments):
    command = ["evaluate", place / "suite.toml", "--out", place / "out", "--data", place, *arguments]
    return CliRunner().invoke(app, list(map(str, command)))


def tables(place):
    return {path.name: path.read_bytes() for table in TABLES for path in sorted((place / "out" / table).iterdir())}


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "emptied": lambda path: path.write_bytes(b""),
    "flipped in a bit": flip_a_bit,
    "deleted": lambda path: path.unlink(),
    "a copy of another": lambda path: shutil.copy(path.with_name("00000.parquet"), path),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("how", [how for how in DAMAGE if how != "a folder"])
def test_a_damaged_table_is_refused_by_report_and_done_again_by_evaluate(finished, place, how, table):
    name = f"{table}/00001.parquet"
    DAMAGE[how](place / "out" / name)
    refused = CliRunner().invoke(app, ["report", str(place / "out")])
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    fault = "is missing" if how == "deleted" else "does not match its digest"
    assert f"out' is damaged: {name} {fault}. `whyformer evaluate` with the same suite redoes" in refused.stderr
    if table != TABLES[0]:
        return  # the tables of a shard are looked at alike
    again = run_again(place)
    assert again.exit_code == 0
    assert f"{name} {fault}: shard 1 is measured again." in again.stderr
    assert tables(place) == tables(finished)
    assert (place / "out/manifest.sha256").read_bytes() == (finished / "out/manifest.sha256").read_bytes()
    report(place / "out")
    assert (place / "out/results.json").read_bytes() == (finished / "out/results.json").read_bytes()


def test_a_folder_in_the_place_of_a_table_is_refused_in_one_line(place):
    DAMAGE["a folder"](place / "out/rows/00001.parquet")
    for result in (CliRunner().invoke(app, ["report", str(place / "out")]), run_again(place, "--quiet")):
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["rows/00003.parquet", "samples/copy of 00001.parquet", "rows/1.parquet"])
def test_a_stray_table_is_refused_by_report_and_evaluate(place, name):
    shutil.copy(place / "out/rows/00001.parquet", place / "out" / name)
    for result in (CliRunner().invoke(app, ["report", str(place / "out")]), run_again(place)):
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"out' is damaged: {name} is not a file of this run. Remove it." in result.stderr


def test_tables_that_a_killed_run_left_behind_are_not_read_and_done_again(finished, place):
    forget_shard(place / "out", 2)
    shutil.copy(place / "out/rows/00001.parquet", place / "out/rows/00002.parquet")
    page = report(place / "out").with_suffix(".md").read_text()
    assert any(line.startswith("4 samples, seed 0; ") for line in page.splitlines())
    assert "1 are still to be done" in page
    assert run_again(place).exit_code == 0
    assert tables(place) == tables(finished)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"nonsense\n", b"0" * 64 + b"  ../../secret\n"])
def test_a_manifest_that_is_missing_or_damaged_is_made_anew_with_all_shards(finished, place, content):
    manifest = place / "out/manifest.sha256"
    manifest.unlink()
    if content is not None:
        manifest.write_bytes(content)
    with pytest.raises(WhyformerError, match=r"out' is damaged: manifest.sha256 (is missing|cannot be read)\."):
        report(place / "out")
    again = run_again(place)
    assert "manifest.sha256 is missing or damaged: all shards are measured again." in again.stderr
    assert tables(place) == tables(finished)
    assert manifest.read_bytes() == (finished / "out/manifest.sha256").read_bytes()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"count": "many"}', b"[" * 100_000, b'{"model": "mi'])
def test_a_damaged_suite_file_is_refused_in_one_line(place, content):
    (place / "out/suite.json").write_bytes(content)
    for result in (CliRunner().invoke(app, ["report", str(place / "out")]), run_again(place)):
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert "out' is damaged: suite.json " in result.stderr


def test_a_suite_file_edited_after_the_run_is_refused_by_report(place):
    suite = place / "out/suite.json"
    suite.write_text(suite.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(WhyformerError, match=r"is damaged: suite.json does not match its digest"):
        report(place / "out")


@pytest.mark.parametrize("how", ["truncated", "emptied"])
def test_a_damaged_table_of_an_old_version_is_named(place, how):
    make_old(place / "out")
    assert "without digests, so changes cannot be detected" in report(place / "out").read_text()
    DAMAGE[how](place / "out/rows/00001.parquet")
    for result in (CliRunner().invoke(app, ["report", str(place / "out")]), run_again(place)):
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert "rows/00001.parquet' is damaged: " in result.stderr


PLUGIN = """
from whyformer.extend import Reads, head_mean, method


@method("first_block", reads=Reads(maps="all"), replace=True)
def first_block(trace):
    row = trace.readout.weights[:, None, :] @ head_mean(trace.records[{block}].map)
    return {{trace.readout.stream: {sign}row[:, 0]}}
"""


@pytest.fixture
def own_methods():
    """The registry without what a test has registered."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.usefixtures("own_methods")
def test_a_run_does_not_go_on_with_another_plugin(place):
    plugin = place / "my_methods.py"
    plugin.write_text(PLUGIN.format(block=0, sign="+"))
    (place / "suite.toml").write_text((place / "suite.toml").read_text().replace("rollout", "first_block"))
    shutil.rmtree(place / "out")
    assert run_again(place, "--plugin", plugin).exit_code == 0
    forget_shard(place / "out", 2)
    before, times = tables(place), plugin.stat()
    plugin.write_text(PLUGIN.format(block=0, sign="-"))
    os.utime(plugin, ns=(times.st_atime_ns, times.st_mtime_ns))
    refused = run_again(place, "--plugin", plugin)
    assert refused.exit_code == 2
    assert "out' holds results from before the code of its plugins changed (started " in refused.stderr
    assert refused.stderr.endswith("): choose another folder.\n")
    assert tables(place) == before
    plugin.write_text(PLUGIN.format(block=0, sign="+"))
    moved = plugin.rename(place / "moved.py")
    assert run_again(place, "--plugin", moved).exit_code == 0


@pytest.mark.usefixtures("own_methods")
def test_a_method_defined_beside_the_run_is_part_of_its_plan(place, bert, monkeypatch):
    import whyformer

    def define(sign):
        source = PLUGIN.format(block=0, sign=sign)
        (place / "cell.py").write_text(source)
        exec(compile(source, str(place / "cell.py"), "exec"), {"__name__": "cell"})

    define("+")
    call = {"shard_size": 2, "out": place / "films"}
    whyformer.evaluate(str(bert), FILMS, "first_block", "class_sensitivity", **call)
    define("-")
    with pytest.raises(WhyformerError, match="from before the code of its plugins changed"):
        whyformer.evaluate(str(bert), FILMS, "first_block", "class_sensitivity", **call)


def swap_two_labels(path):
    """Change a file's content, and neither its size nor its time of change."""
    times = path.stat()
    path.write_text(path.read_text().replace("was great,good", "was great,doog").replace("bad,bad", "bad,dab"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size


def test_a_run_does_not_go_on_with_data_changed_at_equal_size_and_time(place):
    swap_two_labels(place / "films.csv")
    refused = run_again(place)
    assert refused.exit_code == 2
    assert "from before the data of 'table' changed (started " in refused.stderr


def test_above_the_stated_size_data_is_told_by_sizes_and_times_and_the_run_says_so(place, monkeypatch):
    monkeypatch.setattr(run_digests, "MOST_DATA_BYTES", 50)
    shutil.rmtree(place / "out")
    first = run_again(place)
    assert "table: 5 examples read, 5 used." in first.stderr
    assert "changes are detected only by the sizes and times of its files." in first.stderr
    swap_two_labels(place / "films.csv")
    assert run_again(place).exit_code == 0
    os.utime(place / "films.csv", ns=(0, 0))
    assert "from before the data of 'table' changed" in run_again(place).stderr


def test_a_run_does_not_go_on_with_another_version(place, monkeypatch):
    monkeypatch.setattr("whyformer.benchmark.run_plan.package_version", lambda: "99.0")
    refused = run_again(place)
    assert refused.exit_code == 2
    assert "from before the version of whyformer (" in refused.stderr
    assert ", now 99.0) changed (started " in refused.stderr


def test_a_run_does_not_go_on_with_another_data_frame(bert, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": FILMS, "label": LABELS})
    evaluate(str(bert), frame, "rollout", "class_sensitivity", out=tmp_path / "out")
    frame.loc[0, "text"] = "a bad film"
    with pytest.raises(WhyformerError, match="from before the data of 'examples in memory' changed"):
        evaluate(str(bert), frame, "rollout", "class_sensitivity", out=tmp_path / "out")
