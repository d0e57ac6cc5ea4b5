"""Evaluation from Python: any model, any data, methods and protocols by name, and the tables back."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from jsonschema import Draft202012Validator
from PIL import Image
from test_runner import pets  # noqa: F401  (a fixture)

from whyformer import WhyformerError, load
from whyformer.benchmark import PROTOCOLS, Evaluation, evaluate, make_suite, protocol, read_suite, run_suite
from whyformer.benchmark import suite_schema as make_suite_schema
from whyformer.benchmark.engines import ray as cluster
from whyformer.benchmark.figures import make_figures, read_run
from whyformer.data import READERS, Document, oxford_pets

SUITES = sorted((Path(__file__).parents[2] / "benchmarks" / "suites").rglob("*.toml"))
TEXTS = ["the film was great and not bad", "a bad film", "the film was not a great film", "a great film"]
LABELS = ["good", "bad", "bad", "good"]
PAIRS = list(zip(TEXTS, LABELS, strict=True))


class Indexed:
    """A data set as PyTorch has them: a length and numbers, no list."""

    def __len__(self):
        return len(TEXTS)

    def __getitem__(self, number):
        return TEXTS[number], LABELS[number]


class Tabular(Indexed):
    """A data set as Hugging Face has them."""

    column_names = ("text", "label")
    _fingerprint = "abc"

    def __getitem__(self, number):
        return {"text": TEXTS[number], "label": LABELS[number]}


@pytest.fixture(scope="module")
def table_of_a_suite(bert, tmp_path_factory):
    """The figures of the same question, put by a suite and a CSV file."""
    folder = tmp_path_factory.mktemp("films")
    (folder / "films.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in PAIRS))
    document = {
        "model": str(bert),
        "data": {"reader": "table", "path": "films.csv"},
        "methods": ["generic_attention", {"name": "rollout", "first_block": 1}],
        "protocols": ["text_perturbation", {"name": "class_sensitivity", "other": "last"}],
    }
    return make_figures(read_run(run_suite(make_suite(document), folder / "out", data=folder, quiet=True)))


FORMS = {
    "pairs": PAIRS,
    "rows": [{"text": text, "label": label} for text, label in PAIRS],
    "documents": [Document(str(number), *pair) for number, pair in enumerate(PAIRS)],
    "generator": None,
    "data set": Indexed(),
    "Hugging Face": Tabular(),
    "DataFrame": pandas.DataFrame({"text": TEXTS, "label": LABELS}),
    "indices": [(text, ["good", "bad"].index(label)) for text, label in PAIRS],
    "tensors": [(text, torch.tensor(["good", "bad"].index(label))) for text, label in PAIRS],
}


@pytest.mark.parametrize("form", FORMS)
def test_data_of_any_form_gives_the_tables_of_the_suite(bert, table_of_a_suite, form):
    data = (pair for pair in PAIRS) if form == "generator" else FORMS[form]
    methods = ["generic_attention", ("rollout", {"first_block": 1})]
    result = evaluate(bert, data, methods, ["text_perturbation", {"name": "class_sensitivity", "other": "last"}])
    assert [p["protocol"] for p in result.results["protocols"]] == ["text_perturbation", "class_sensitivity other=last"]
    for protocol_, expected in zip(result.results["protocols"], table_of_a_suite["protocols"], strict=True):
        for table, other in zip(protocol_["tables"], expected["tables"], strict=True):
            values, others = ({row["method"]: row["value"] for row in one["rows"]} for one in (table, other))
            assert values == pytest.approx(others, abs=1e-5)


def test_a_module_a_loaded_model_and_a_folder_are_measured_alike(vit, pets, tmp_path):  # noqa: F811
    loaded_model = load(vit)
    data = ("oxford_pets", {"folder": pets.name})
    options = {"samples": 3, "data_folder": pets.parent}
    models = {
        "folder": (vit, {}),
        "loaded model": (loaded_model, {}),
        "module": (loaded_model.model, {"processor": loaded_model.processor}),
    }
    frames = {}
    for name, (model, processor) in models.items():
        result = evaluate(model, data, "rollout", "segmentation", **options, **processor)
        frames[name] = result.to_pandas().set_index(["figure", "method"])["value"]
    assert len(frames["folder"]) == 5 * 4
    for values in frames.values():
        assert values.to_dict() == pytest.approx(frames["folder"].to_dict(), abs=1e-6)
    by_hand = evaluate(vit, list(oxford_pets(pets)), "rollout", "segmentation", samples=3).to_pandas()
    assert by_hand.set_index(["figure", "method"])["value"].to_dict() == pytest.approx(frames["folder"].to_dict())


def test_pictures_are_given_as_they_are(vit):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(2)]
    mask = np.zeros((32, 32), dtype=np.uint8)
    mask[8:20, 4:16] = 1
    tables = []
    for form in (mask, mask.astype(bool), Image.fromarray(mask * 255), np.where(mask, 1, 2)):
        rows = [{"image": Image.fromarray(array), "label": "cat", "mask": form} for array in arrays]
        result = evaluate(vit, rows, "rollout", "segmentation")
        assert result.results["samples"] == 2
        tables.append(result.results["protocols"])
    assert all(table == tables[0] for table in tables)
    plain = evaluate(vit, arrays, "rollout", "image_perturbation")
    figures = set(plain.to_pandas()["figure"])
    assert "negative AUC, probability" in figures
    assert "negative AUC" not in figures  # accuracy needs labels


def test_methods_that_remove_units_are_measured_like_others(bert):
    """What asks the model itself which tokens count finds the order that the protocol then tries."""
    budgets = [{"name": "rise", "forwards": 32}, {"name": "mask_regression", "forwards": 32, "units": "word"}]
    table = evaluate(bert, PAIRS, ["occlusion", *budgets], "text_perturbation").to_pandas()
    assert {"occlusion", "rise forwards=32", "mask_regression forwards=32 units=word"} <= {*table["method"]}
    assert table["value"].notna().any()


def test_methods_with_noise_on_the_input_are_measured_like_others(bert):
    noisy = {"name": "input_x_gradient", "noise": 0.1, "noise_samples": 2}
    table = evaluate(bert, PAIRS, [noisy], "text_perturbation").to_pandas()
    assert "input_x_gradient noise=0.1 noise_samples=2" in {*table["method"]}
    assert table["value"].notna().any()


def test_the_result_has_tables_values_and_a_report(bert, tmp_path):
    result = evaluate(bert, PAIRS, ["rollout"], ["text_perturbation"], seed=3)
    assert isinstance(result, Evaluation)
    frame = result.to_pandas()
    assert list(frame) == ["protocol", "figure", "method", "value", "low", "high", "samples", "better", "p"]
    values = result.samples_to_pandas()
    chosen = values[(values.method == "rollout") & (values.measure == "probability area, positive")]
    figure = frame[(frame.method == "rollout") & (frame.figure == "positive AUC, probability")]
    assert figure.value.item() == pytest.approx(np.mean([value for (value,) in chosen["values"]]))
    assert list(chosen.name) == [f"example {number}" for number in range(4)]
    page = result.report(tmp_path / "report")
    assert page == tmp_path / "report" / "report.html"
    assert json.loads((tmp_path / "report" / "results.json").read_text()) == result.results
    assert "| method | negative − positive (of 90) ↑ |" in str(result)
    assert "curves/" not in str(result)
    assert repr(result) == "<Evaluation of tiny-bert on 4 samples: text_perturbation>"


def test_a_temporary_run_lasts_as_long_as_its_result(bert):
    result = evaluate(bert, TEXTS, "rollout", "text_perturbation")
    folder = result.folder
    assert (folder / "suite.json").is_file()
    del result
    gc.collect()
    assert not folder.exists()


def test_a_run_in_a_folder_goes_on_and_another_one_is_refused(bert, tmp_path):
    calls = {"out": tmp_path / "out", "shard_size": 2}
    evaluate(bert, PAIRS, "rollout", "text_perturbation", **calls)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    assert len(times) == 6
    evaluate(bert, PAIRS, "rollout", "text_perturbation", **calls)
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    changed = [*PAIRS[:3], ("a bad film", "bad")]
    with pytest.raises(WhyformerError, match="from before the data of 'examples in memory' changed"):
        evaluate(bert, changed, "rollout", "text_perturbation", **calls)
    loaded_model = load(bert)
    evaluate(loaded_model, PAIRS, "rollout", "text_perturbation", out=tmp_path / "module")
    with torch.no_grad():
        next(loaded_model.model.parameters()).mul_(1.5)
    with pytest.raises(WhyformerError, match="from before the weights of 'tiny-bert' changed"):
        evaluate(loaded_model, PAIRS, "rollout", "text_perturbation", out=tmp_path / "module")


WRONG = [
    ({"methods": ["rolout"]}, r"No method named 'rolout'. Did you mean 'rollout'"),
    ({"methods": [("rollout", {"depth": 2})]}, "rollout has no option 'depth'"),
    ({"methods": [3]}, r"A method is its name, or \(name, options\), not 3"),
    ({"methods": 3}, "methods=3: give a list of names"),
    ({"protocols": ["text_perturbtion"]}, "No protocol named 'text_perturbtion'. Did you mean 'text_perturbation'"),
    ({"protocols": []}, "No protocol is named"),
    ({"data": "scenez"}, "No reader named 'scenez'. Did you mean 'scenes'"),
    ({"data": ("scenes", {"cuont": 3})}, "scenes has no option 'cuont'"),
    ({"data": 3}, "Data is a list of examples or a data set, not an int"),
    ({"data": {"text": TEXTS}}, "Data is a list of examples or a data set, not a dict"),
    ({"data": [3]}, "None of the 1 samples could be used: example 0 is an int: give a text, a picture"),
    ({"data": []}, "examples in memory has no examples"),
    ({"samples": 0}, "samples=0: a whole number, 1 or more"),
    ({"batch_size": 1.5}, "batch_size=1.5: a whole number, 1 or more"),
    ({"model": 5}, "model=5: give a module, a LoadedModel, a folder, or a name"),
    ({"engine": "ray"}, "engine='ray' has workers that load the model"),
    ({"engine": "slurm"}, "engine='slurm'. Choose from: local, ray"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_is_wrong_with_a_call_is_said_in_a_line(bert, change, message):
    call = {"model": bert, "data": PAIRS, "methods": "rollout", "protocols": "text_perturbation"} | change
    with pytest.raises(WhyformerError, match=message) as caught:
        evaluate(**call)
    assert "\n" not in str(caught.value)


PLUGIN = """
from whyformer.benchmark import protocol
from whyformer.data import Document, Examples, reader

@reader("plugin_films")
def films(count: int):
    return Examples(tuple(f"film {n}" for n in range(count)), lambda n: Document(f"film {n}", "a great film", "good"))
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "my_readers.py"
    path.write_text(PLUGIN)
    yield path
    READERS.pop("plugin_films", None)


def test_a_plugins_reader_is_used_by_name_also_on_a_cluster(bert, tmp_path, plugin, monkeypatch):
    result = evaluate(bert, ("plugin_films", {"count": 2}), "rollout", "text_perturbation", plugins=[plugin])
    assert result.results["samples"] == 2

    class Counter:
        """In place of an actor."""

        def __init__(self):
            self.count, self.remote = self, cluster.AttemptCounter().count

    suite = make_suite(
        {
            "model": str(bert),
            "data": {"reader": "plugin_films", "count": 2},
            "methods": ["rollout"],
            "protocols": ["text_perturbation"],
        }
    )
    del READERS["plugin_films"]  # a worker is a process of its own, and knows no plugin
    from whyformer import plugins

    monkeypatch.setattr(plugins, "_FILES", type(plugins._FILES)())
    monkeypatch.setattr("ray.get", lambda found: found)
    unaware = cluster.RayWorker(suite, str(tmp_path), Counter())
    assert unaware.tables(0).startswith("No reader named 'plugin_films'.")
    assert set(cluster.RayWorker(suite, str(tmp_path), Counter(), [str(plugin)]).tables(0)) == {
        "samples",
        "explanations",
        "rows",
    }


def test_a_protocols_name_is_not_taken_twice():
    with pytest.raises(WhyformerError, match="There is a protocol named 'saco' already"):
        protocol("saco", {})(lambda shard: {})
    before = PROTOCOLS["saco"]
    try:
        protocol("saco", {}, replace=True)(lambda shard: {})
        assert PROTOCOLS["saco"].figures == {}
    finally:
        PROTOCOLS["saco"] = before


def test_the_schema_accepts_all_committed_suites_and_no_misspelt_one():
    import tomllib

    validator = Draft202012Validator(make_suite_schema())
    for path in SUITES:
        validator.validate(tomllib.loads(path.read_text()))
        assert read_suite(path).methods
    document = tomllib.loads(SUITES[0].read_text())
    wrong = [
        {"modle": "x"},
        {"methods": ["rolout"]},
        {"methods": [{"name": "rollout", "depth": 3}]},
        {"methods": [{"name": "rollout", "noise": 0.1}]},
        {"methods": [{"name": "grad_cam", "noise": "much"}]},
        {"protocols": [{"name": "image_perturbation", "fill": "pink"}]},
        {"data": {"reader": "petz"}},
        {"data": {"reader": "scenes"}},
        {"samples": 0},
        {"labels": {"cat": 3}},
    ]
    for change in wrong:
        assert not validator.is_valid(document | change), change
    assert validator.is_valid(document | {"methods": [{"name": "grad_cam", "noise": 0.1, "noise_samples": 4}]})


def test_a_suite_without_pydantic_says_how_to_get_it(monkeypatch, bert):
    import importlib

    plain = importlib.import_module

    def without(name, *args):
        if name == "pydantic":
            raise ModuleNotFoundError(name)
        return plain(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(WhyformerError, match=r"This needs pydantic: .*pip install -e '.\[eval\]'"):
        make_suite({})


def test_a_suite_may_be_changed_and_stays_what_it_is():
    suite = read_suite(SUITES[0])
    assert make_suite(suite.document) == suite
    assert replace(suite, seed=4).document["seed"] == 4
