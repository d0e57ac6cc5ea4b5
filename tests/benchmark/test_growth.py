"""Runs grow: methods that are added later are measured on the samples of the run, and nothing is measured twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from test_runner import as_toml, bytes_of, pets, suite  # noqa: F401  (fixtures)

from conftest import change_weights
from made_runs import forget_shard
from whyformer import METHODS, WhyformerError, evaluate
from whyformer.benchmark import read_suite, run_suite, tables
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import make_figures, read_run
from whyformer.benchmark.tables import read_records

FEW = (Choice("rollout"), Choice("random"))
MORE = (*FEW, Choice("generic_attention"), Choice("grad_cam"))


def assert_same_figures(folder, other):
    """Equal tables, whatever the order in which methods came."""
    one, two = (make_figures(read_run(place)) for place in (folder, other))
    assert [p["protocol"] for p in one["protocols"]] == [p["protocol"] for p in two["protocols"]]
    for first, second in zip(one["protocols"], two["protocols"], strict=True):
        for table, expected in zip(first["tables"], second["tables"], strict=True):
            rows, wanted = ({row["method"]: row for row in each["rows"]} for each in (table, expected))
            assert rows.keys() == wanted.keys()
            for method, row in rows.items():
                assert row["samples"] == wanted[method]["samples"]
                for key in ("value", "low", "high"):
                    np.testing.assert_allclose(row[key], wanted[method][key], rtol=1e-5, atol=1e-6)


def test_a_grown_run_has_the_tables_of_one_that_had_all_methods_from_the_start(suite, tmp_path):  # noqa: F811
    out = run_suite(replace(suite, methods=FEW), tmp_path / "out", quiet=True)
    before = bytes_of(out)
    run_suite(replace(suite, methods=MORE[:3]), out, quiet=True)
    run_suite(replace(suite, methods=MORE), out, quiet=True)
    assert {name: bytes_of(out)[name] for name in before} == before
    added = sorted(bytes_of(out).keys() - before.keys())
    assert added == [
        f"{table}/0000{n}_{growth}.parquet" for table in ("explanations", "rows") for n in range(3) for growth in (1, 2)
    ]
    whole = run_suite(replace(suite, methods=MORE), tmp_path / "whole", quiet=True)
    assert_same_figures(out, whole)
    maps, expected = (
        {(one["sample"], one["method"]): one["scores"] for one in read_records(folder, "explanations")}
        for folder in (out, whole)
    )
    assert maps.keys() == expected.keys()
    for key, scores in maps.items():
        np.testing.assert_allclose(scores, expected[key], atol=1e-5)
    assert len(read_records(out, "rows")) == len(read_records(whole, "rows"))


def test_only_what_is_missing_is_computed(suite, tmp_path, monkeypatch):  # noqa: F811
    out = run_suite(replace(suite, methods=FEW, samples=2), tmp_path / "out", quiet=True)
    measured = []

    def row_records(label, columns, numbers):
        measured.extend(method for method, _ in columns)
        return tables.row_records(label, columns, numbers)

    monkeypatch.setattr("whyformer.benchmark.worker.row_records", row_records)
    names = (Choice("generic_attention"),)  # methods that the run has need not be named again
    run_suite(replace(suite, methods=names, samples=2), out, quiet=True)
    assert set(measured) == {"generic_attention", "random"}
    assert {row["method"] for row in read_records(out, "rows")} == {
        "rollout", "random", "generic_attention", "centre_prior", "edge_prior",
    }  # fmt: skip
    measured.clear()
    run_suite(replace(suite, methods=FEW, samples=2), out, quiet=True)
    assert measured == []


def test_a_killed_growth_goes_on(suite, tmp_path):  # noqa: F811
    out = run_suite(replace(suite, methods=FEW), tmp_path / "out", quiet=True)
    before = bytes_of(out)
    toml = tmp_path / "suite.toml"
    toml.write_text(as_toml(replace(suite, methods=MORE)))
    code = (
        "import sys, time, whyformer.benchmark.runner as run\n"
        "from whyformer.benchmark import tables\n"
        "from whyformer.files import write_whole\n"
        "def slow(path, content):\n"
        "    write_whole(path, content)\n"
        "    print(path, flush=True)\n"
        "    time.sleep(0.05)\n"
        "tables.write_whole = slow\n"
        "run.run_suite(sys.argv[1], sys.argv[2], quiet=True)\n"
    )
    command = [sys.executable, "-c", code, str(toml), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):  # the first shard's two tables, and one of the second's
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    run = read_run(out)
    assert run.ungrown in (2, 4)
    assert "methods that were added are still to be measured" in run.remarks[0]
    run_suite(read_suite(toml), out, quiet=True)
    assert {name: bytes_of(out)[name] for name in before} == before
    assert_same_figures(out, run_suite(replace(suite, methods=MORE), tmp_path / "whole", quiet=True))


def test_a_run_killed_before_its_manifest_knows_the_new_methods_grows_all_the_same(suite, tmp_path):  # noqa: F811
    small = replace(suite, samples=2)
    out = run_suite(replace(small, methods=FEW), tmp_path / "out", quiet=True)
    manifest = (out / "manifest.sha256").read_text()
    run_suite(replace(small, methods=MORE), out, quiet=True)
    (out / "manifest.sha256").write_text(manifest)
    for path in out.glob("*/*_1.parquet"):
        path.unlink()
    run_suite(replace(small, methods=MORE), out, quiet=True)
    assert_same_figures(out, run_suite(replace(small, methods=MORE), tmp_path / "whole", quiet=True))


def test_a_damaged_shard_of_a_grown_run_is_measured_again_by_its_own_methods(suite, tmp_path):  # noqa: F811
    small = replace(suite, samples=4)
    out = run_suite(replace(small, methods=FEW), tmp_path / "out", quiet=True)
    run_suite(replace(small, methods=MORE), out, quiet=True)
    before = bytes_of(out)
    (out / "rows" / "00001.parquet").write_bytes(b"not a table")
    (out / "rows" / "00000_1.parquet").unlink()
    with pytest.raises(WhyformerError, match=r"rows/00000_1.parquet is missing"):
        read_run(out)
    run_suite(replace(small, methods=MORE), out, quiet=True)
    assert bytes_of(out) == before


def test_samples_that_the_run_could_not_use_are_left_out_of_what_is_added(suite, pets, tmp_path, monkeypatch):  # noqa: F811
    import whyformer.benchmark.worker as worker

    make_sample = worker.make_sample

    def refuse(example, *rest):
        if example.name == "cat_1":
            raise ValueError("damaged")
        return make_sample(example, *rest)

    monkeypatch.setattr(worker, "make_sample", refuse)
    out = run_suite(replace(suite, samples=8, methods=FEW), tmp_path / "out", quiet=True)
    monkeypatch.setattr(worker, "make_sample", make_sample)
    run_suite(replace(suite, samples=8, methods=MORE), out, quiet=True)
    (bad,) = (one["sample"] for one in read_records(out, "samples") if one["error"])
    rows = read_records(out, "rows")
    assert {row["method"] for row in rows} >= {"grad_cam", "rollout"}
    assert bad not in {row["sample"] for row in rows}


def test_growing_is_refused_if_weights_data_version_or_code_have_changed(bert, tmp_path, monkeypatch):
    bert, out = shutil.copytree(bert, tmp_path / "bert"), tmp_path / "out"
    texts = ["a fine film", "a dull film"]
    evaluate(str(bert), texts, "rollout", "class_sensitivity", out=out)
    more = ["rollout", "grad_cam"]
    with pytest.raises(WhyformerError, match="before the data of 'examples in memory' changed"):
        evaluate(str(bert), [*texts[:1], "another film"], more, "class_sensitivity", out=out)
    with pytest.raises(WhyformerError, match=r"another suite \(seed"):
        evaluate(str(bert), texts, more, "class_sensitivity", out=out, seed=1)
    with monkeypatch.context() as changed:
        changed.setattr("whyformer.benchmark.run_plan.package_version", lambda: "99")
        with pytest.raises(WhyformerError, match=r"before the version of whyformer .* changed"):
            evaluate(str(bert), texts, more, "class_sensitivity", out=out)
    with monkeypatch.context() as changed:
        other = METHODS["generic_attention"].formula  # in another file of the package
        changed.setitem(METHODS, "rollout", replace(METHODS["rollout"], formula=other))
        with pytest.raises(WhyformerError, match="the code of rollout"):
            evaluate(str(bert), texts, "grad_cam", "class_sensitivity", out=out)
    change_weights(bert, lambda weights: {name: 2 * value for name, value in weights.items()})
    with pytest.raises(WhyformerError, match=f"before the weights of '{bert}' changed"):
        evaluate(str(bert), texts, more, "class_sensitivity", out=out)


PLUGIN = """
from whyformer import METHODS
from whyformer.extend import method

@method("grown_rollout", reads=METHODS["rollout"].reads, replace=True)
def grown_rollout(trace):
    "Rollout again."
    return METHODS["rollout"].formula(trace)
"""


def test_a_method_of_a_plugin_is_added_beside_those_of_the_package(bert, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    texts = ["a fine film", "a dull film"]
    evaluate(str(bert), texts, "rollout", "class_sensitivity", out=tmp_path / "out")
    try:
        added = {"out": tmp_path / "out", "plugins": [plugin]}
        evaluation = evaluate(str(bert), texts, "grown_rollout", "class_sensitivity", **added)
        values = evaluation.to_pandas().set_index("method")["value"]
        assert values["grown_rollout"] == values["rollout"]
        plugin.write_text(PLUGIN.replace("Rollout again", "Rollout once more"))
        with pytest.raises(WhyformerError, match="the code of grown_rollout"):
            evaluate(str(bert), texts, "grad_cam", "class_sensitivity", **added)
    finally:
        METHODS.pop("grown_rollout", None)


def test_an_unfinished_run_can_grow(suite, tmp_path):  # noqa: F811
    small = replace(suite, samples=4)
    out = run_suite(replace(small, methods=FEW), tmp_path / "out", quiet=True)
    forget_shard(out, 1)
    run_suite(replace(small, methods=MORE), out, quiet=True)
    assert_same_figures(out, run_suite(replace(small, methods=MORE), tmp_path / "whole", quiet=True))
