"""Suites: run, stopped, gone on with; what is wrong with one is said in a line."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import torch
import transformers
from PIL import Image

from conftest import change_weights, save_noise
from made_runs import forget_shard, make_old
from whyformer import Survey, WhyformerError, attribute, load, survey
from whyformer.batching import MemoryLimit
from whyformer.benchmark import NoUsableSample, make_suite, read_suite, run_suite
from whyformer.benchmark.tables import TABLES, read_records
from whyformer.inputs.encode import encode
from whyformer.inputs.fills import blank, blanked
from whyformer.metrics.perturbation_curves import FRACTIONS, area, curves, step_logits
from whyformer.metrics.pixel_maps import upsampled
from whyformer.metrics.priors import centre_prior
from whyformer.metrics.removal import removed_pixels
from whyformer.metrics.segmentation import foreground, overlap

SETTINGS = {
    "samples": 6,
    "shard": 2,
    "methods": ["generic_attention", {"name": "rollout", "first_block": 1}],
    "protocols": ["image_perturbation", "segmentation"],
}

SUITES = sorted((Path(__file__).parents[2] / "benchmarks" / "suites").glob("*.toml"))


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """Eight pictures of noise with masks, in the layout of Oxford-IIIT Pet."""
    folder = tmp_path_factory.mktemp("data") / "pets"
    (folder / "images").mkdir(parents=True)
    (folder / "annotations" / "trimaps").mkdir(parents=True)
    for number in range(8):
        name = f"{'cat' if number % 2 else 'dog'}_{number}"
        save_noise(folder / "images" / f"{name}.png", seed=number, width=40, height=36)
        marks = np.random.default_rng(number).integers(1, 4, (36, 40), dtype=np.uint8)
        Image.fromarray(marks).save(folder / "annotations" / "trimaps" / f"{name}.png")
    return folder


@pytest.fixture
def suite(vit, pets):
    return make_suite({"model": str(vit), "data": {"reader": "oxford_pets", "folder": str(pets)}, **SETTINGS})


def found(folder, **wanted):
    rows = [
        row for row in read_records(Path(folder), "rows") if all(row[key] == value for key, value in wanted.items())
    ]
    return np.array([row["values"] for row in rows]).squeeze()


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*.parquet"))}


def assert_same_tables(folder, other):
    """The same records, floats but for rounding: two processes may add up in another order."""
    assert bytes_of(folder).keys() == bytes_of(other).keys()
    for table in TABLES:
        for record, expected in zip(read_records(folder, table), read_records(other, table), strict=True):
            assert record.keys() == expected.keys()
            for column, value in expected.items():
                if isinstance(value, (list, float)):
                    np.testing.assert_allclose(record[column], value, rtol=1e-5, atol=1e-5)
                else:
                    assert record[column] == value


def test_a_run_finds_what_the_protocols_find_by_hand(suite, vit, pets, tmp_path):
    run_suite(suite, tmp_path / "out", quiet=True)
    samples = read_records(tmp_path / "out", "samples")
    assert [sample["name"] for sample in samples] == sorted(sample["name"] for sample in samples)
    loaded_model = load(vit)
    paths = [pets / "images" / f"{sample['name']}.png" for sample in samples]
    processor = loaded_model.image_processor
    pixels = processor(images=[Image.open(path) for path in paths], return_tensors="pt")["pixel_values"]

    def forward(asked):
        return loaded_model.model(pixel_values=asked).logits

    clean = step_logits(forward, pixels[None])[0]
    predicted, labels = clean.argmax(dim=1), torch.tensor([int(p.name.startswith("dog")) for p in paths])
    scores = attribute(loaded_model.model, {"pixel_values": pixels}, predicted.tolist(), "rollout", first_block=1)
    maps = {
        "rollout first_block=1": scores["image"][:, 1:].unflatten(1, (4, 4)),
        "centre_prior": centre_prior(pixels, 4, 4),
    }
    truths = torch.stack([truth_of(pets / "annotations" / "trimaps" / path.name) for path in paths])
    for method, map_ in maps.items():
        where = {"protocol": "image_perturbation", "method": method}
        for order, first in (("positive", True), ("negative", False)):
            gone = removed_pixels(map_, (32, 32), FRACTIONS, most_relevant_first=first)
            steps = blanked(pixels, gone, blank("black", processor.image_mean, processor.image_std))
            by_hand = curves(step_logits(forward, steps), labels, predicted)
            for measure in ("accuracy", "probability", "logit"):
                expected = getattr(by_hand, measure)
                curve = found(tmp_path / "out", **where, measure=f"{measure} {order}")
                np.testing.assert_allclose(curve, expected, atol=1e-5)
                areas = found(tmp_path / "out", **where, measure=f"{measure} area, {order}")
                np.testing.assert_allclose(areas, area(expected, FRACTIONS), atol=1e-5)
        counts = overlap(foreground(upsampled(map_, (32, 32))), truths)
        measured = found(tmp_path / "out", protocol="segmentation", method=method, measure="overlap")
        np.testing.assert_array_equal(measured, counts)
    methods = {row["method"] for row in read_records(tmp_path / "out", "rows")}
    assert methods == {"generic_attention", "rollout first_block=1", "random", "centre_prior", "edge_prior"}
    kept = read_records(tmp_path / "out", "explanations")
    rollouts = [record["scores"] for record in kept if record["method"] == "rollout first_block=1"]
    np.testing.assert_allclose(rollouts, maps["rollout first_block=1"].flatten(1), atol=1e-6)


def truth_of(path):
    marks = Image.open(path).resize((32, 32), Image.Resampling.NEAREST)
    return torch.tensor([2, 1, 0, 2])[torch.from_numpy(np.array(marks)).long()]


def test_a_run_killed_at_any_moment_ends_with_the_same_tables(suite, pets, tmp_path):
    run_suite(suite, tmp_path / "whole", quiet=True)
    files = 3 * len(TABLES)
    assert len(bytes_of(tmp_path / "whole")) == files
    toml = tmp_path / "suite.toml"
    toml.write_text(as_toml(suite))
    code = (
        "import sys, time, whyformer.benchmark.runner as run\n"
        "from whyformer.benchmark import tables\n"
        "from whyformer.files import write_whole\n"
        "def slow(path, content):\n"
        "    write_whole(path, content)\n"
        "    print(path, flush=True)\n"
        "    time.sleep(0.05)\n"
        "tables.write_whole = slow\n"
        "import torch; torch.set_num_threads(1)\n"
        "run.run_suite(sys.argv[1], sys.argv[2], quiet=True)\n"
    )
    command = [sys.executable, "-c", code, str(toml), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(5):  # the first shard's three tables, and two of the second's
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    first_shards = bytes_of(tmp_path / "out")
    assert 5 <= len(first_shards) < files
    (tmp_path / "out" / "rows" / ".00002.parquet.tmp").write_bytes(b"half of a file")
    run_suite(read_suite(toml), tmp_path / "out", quiet=True)
    assert_same_tables(tmp_path / "out", tmp_path / "whole")
    # What the killed process had finished is not done again.
    finished = {name: content for name, content in first_shards.items() if name.endswith("00000.parquet")}
    assert finished == {name: bytes_of(tmp_path / "out")[name] for name in finished}


def as_toml(suite):
    document = suite.document
    lines = [f"{key} = {json.dumps(document[key])}" for key in ("model", "samples", "shard", "batch", "seed")]
    for key in ("methods", "protocols"):
        entries = [
            ", ".join(f"{name} = {json.dumps(value)}" for name, value in entry.items()) for entry in document[key]
        ]
        lines.append(f"{key} = [{', '.join('{' + entry + '}' for entry in entries)}]")
    return "\n".join([*lines, "[data]", *(f"{k} = {json.dumps(v)}" for k, v in document["data"].items())])


def test_a_finished_run_is_not_done_again_and_another_suite_is_refused(suite, tmp_path):
    out = run_suite(replace(suite, samples=2), tmp_path / "out", quiet=True)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    run_suite(replace(suite, samples=2), out, quiet=True)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    with pytest.raises(WhyformerError, match=r"holds the results of another suite \(seed"):
        run_suite(replace(suite, samples=2, seed=1), out, quiet=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(WhyformerError, match="is not empty and holds no suite"):
        run_suite(suite, tmp_path / "other", quiet=True)


def test_a_run_killed_while_it_claims_its_folder_can_be_started_again(suite, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / ".suite.json.tmp").write_bytes(b'{"model": ')
    run_suite(replace(suite, samples=2), begun, quiet=True)
    run_suite(replace(suite, samples=2), tmp_path / "whole", quiet=True)
    assert_same_tables(begun, tmp_path / "whole")
    assert not (begun / ".suite.json.tmp").exists()


def test_a_sample_that_cannot_be_read_is_recorded_and_skipped(suite, pets, tmp_path, monkeypatch):
    copied = tmp_path / "pets"
    shutil.copytree(pets, copied)
    everything = make_suite({**suite.document, "samples": 8, "data": {"reader": "oxford_pets", "folder": str(copied)}})
    run_suite(everything, tmp_path / "whole", quiet=True)
    (copied / "images" / "cat_3.png").write_bytes(b"no picture")
    (copied / "images" / "dog_4.png").rename(copied / "images" / "horse_4.png")
    (copied / "annotations" / "trimaps" / "dog_4.png").rename(copied / "annotations" / "trimaps" / "horse_4.png")
    run_suite(everything, tmp_path / "out", quiet=True)
    errors = {
        sample["name"]: sample["error"] for sample in read_records(tmp_path / "out", "samples") if sample["error"]
    }
    assert set(errors) == {"cat_3", "horse_4"}
    assert "cat_3.png' is not an image that can be read" in errors["cat_3"]
    assert "No label named 'horse'" in errors["horse_4"]
    whole, rest = (
        {(names[row["sample"]], row["method"], row["measure"]): row["values"] for row in read_records(folder, "rows")}
        for folder in (tmp_path / "whole", tmp_path / "out")
        for names in [{sample["sample"]: sample["name"] for sample in read_records(folder, "samples")}]
    )
    assert {key[0] for key in whole} - {key[0] for key in rest} == {"cat_3", "dog_4"}
    for key, values in rest.items():
        np.testing.assert_allclose(values, whole[key], atol=1e-4)


VQA = {"reader": "vqa", "questions": "questions.json", "annotations": "annotations.json"}
# What does not fit together, and what is said of it.
UNFIT = {
    "labels": ({"labels": {"cat": "tabby", "dog": "hound"}}, "No label named '(tabby|hound)'. .*"),
    "scenes": (
        {"data": {"reader": "scenes", "count": 5}, "protocols": ["image_perturbation"]},
        "Scenes are for detectors, dual encoders and models of regions, not for tiny-vit.",
    ),
    "vqa": (
        {"model": "mini-lxmert", "data": VQA, "protocols": ["vqa_removal"]},
        "Question 1: name the folder of the pictures' regions, `regions`.",
    ),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_data_and_labels_that_do_not_fit_the_model_end_the_run_at_once(suite, tmp_path, unfit):
    questions = [{"question_id": n, "image_id": n, "question": "what colour is it?"} for n in (1, 2, 3)]
    answers = [{"question_id": n, "image_id": n, "answers": [{"answer": "red"}] * 10} for n in (1, 2, 3)]
    (tmp_path / "questions.json").write_text(json.dumps({"questions": questions}))
    (tmp_path / "annotations.json").write_text(json.dumps({"annotations": answers}))
    change, reason = UNFIT[unfit]
    out = tmp_path / "out"
    with pytest.raises(WhyformerError) as caught:
        run_suite(make_suite({**suite.document, **change}), out, data=tmp_path, quiet=True)
    said = f"No sample can be used: {reason} Fix the suite's model, \\[data\\] or \\[labels\\]."
    assert re.fullmatch(said, str(caught.value)), caught.value
    assert bytes_of(out) == {}
    run_suite(suite, out, quiet=True)  # mended, it may use the same folder
    assert len(bytes_of(out)) == 3 * len(TABLES)


def test_a_first_shard_of_an_unknown_label_does_not_end_the_run(suite, tmp_path):
    out = run_suite(replace(suite, labels={"cat": "tabby"}, shard=1, samples=8), tmp_path / "out", quiet=True)
    errors = {sample["name"]: sample["error"] for sample in read_records(out, "samples")}
    assert [name for name, error in errors.items() if error] == ["cat_1", "cat_3", "cat_5", "cat_7"]
    assert errors["cat_1"].startswith("No label named 'tabby'.")


@pytest.mark.parametrize(
    ("error", "is_recorded"),
    [
        (RuntimeError("Unable to read the chunk"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
    ],
)
def test_the_machines_trouble_is_not_put_down_to_a_sample(suite, tmp_path, monkeypatch, error, is_recorded):
    from whyformer.benchmark import worker as work

    plain = work.encode_sample

    def breaks(loaded_model, sample):
        if sample.name.endswith("_3"):
            raise error
        return plain(loaded_model, sample)

    monkeypatch.setattr(work, "encode_sample", breaks)
    everything = replace(suite, samples=8)
    if not is_recorded:
        with pytest.raises(type(error)):
            run_suite(everything, tmp_path / "out", quiet=True)
        return
    out = run_suite(everything, tmp_path / "out", quiet=True)
    errors = {sample["name"]: sample["error"] for sample in read_records(out, "samples") if sample["error"]}
    assert errors == {"cat_3": "Unable to read the chunk"}


def answering_nan_to(monkeypatch, wrong):
    """The model answers NaN wherever `wrong` says so of the inputs."""
    from whyformer.benchmark import sample_targets

    plain = sample_targets._classification

    def classification(loaded_model, batch):
        asks = plain(loaded_model, batch)

        def logits(inputs):
            return asks.logits(inputs).masked_fill(wrong(inputs)[:, None], torch.nan)

        return replace(asks, logits=logits)

    monkeypatch.setattr(sample_targets, "_classification", classification)


def test_a_sample_without_a_finite_answer_is_recorded_and_skipped(suite, tmp_path, monkeypatch):
    run_suite(suite, tmp_path / "whole", quiet=True)
    answering_nan_to(monkeypatch, lambda asked: asked["sample"] == 1)  # the second of every shard
    run_suite(suite, tmp_path / "out", quiet=True)
    samples = read_records(tmp_path / "out", "samples")
    assert [sample["error"] for sample in samples] == [None, "The model answers with NaN or infinite logits."] * 3
    kept = {sample["sample"] for sample in samples if not sample["error"]}
    rows = [row for row in read_records(tmp_path / "whole", "rows") if row["sample"] in kept]
    for one, other in zip(rows, read_records(tmp_path / "out", "rows"), strict=True):
        assert (one["sample"], one["method"], one["measure"]) == (other["sample"], other["method"], other["measure"])
        np.testing.assert_allclose(other["values"], one["values"], atol=1e-5)


def test_a_shard_without_a_finite_answer_stops_nothing(suite, tmp_path, monkeypatch):
    shards = iter([True, False, False])
    is_first, kept = {}, []

    def wrong(inputs):
        kept.append(inputs["pixel_values"])  # so that no other batch gets its place in memory
        batch = kept[-1].untyped_storage().data_ptr()
        return torch.full_like(inputs["sample"], is_first.setdefault(batch, next(shards, False)), dtype=torch.bool)

    answering_nan_to(monkeypatch, wrong)
    out = run_suite(suite, tmp_path / "out", quiet=True)
    errors = [sample["error"] for sample in read_records(out, "samples")]
    assert errors == ["The model answers with NaN or infinite logits."] * 2 + [None] * 4
    assert {row["sample"] for row in read_records(out, "rows")} == {
        s["sample"] for s in read_records(out, "samples")[2:]
    }


def test_a_run_without_a_finite_answer_is_an_error_and_leaves_no_result(suite, tmp_path, monkeypatch):
    answering_nan_to(monkeypatch, lambda asked: asked["sample"] >= 0)
    said = "None of the 6 samples could be used: The model answers with NaN or infinite logits."
    with pytest.raises(NoUsableSample, match=f"^{said}$"):
        run_suite(suite, tmp_path / "out", quiet=True)
    assert bytes_of(tmp_path / "out") == {}
    monkeypatch.undo()
    run_suite(suite, tmp_path / "out", quiet=True)  # the folder can be used again
    assert len(bytes_of(tmp_path / "out")) == 3 * len(TABLES)


@pytest.mark.parametrize("how_many", ["one", "all"])
def test_a_method_without_finite_scores_costs_the_sample_or_itself(suite, tmp_path, monkeypatch, how_many):
    from whyformer.benchmark import method_maps

    plain = method_maps.score_batch

    def spoilt(loaded_model, inputs, target, choice, *arguments, **settings):
        result = plain(loaded_model, inputs, target, choice, *arguments, **settings)
        if choice.method.name == "generic_attention":
            result.scores["image"][slice(None) if how_many == "all" else 0] = torch.nan
        return result

    monkeypatch.setattr(method_maps, "score_batch", spoilt)
    suite = replace(suite, samples=3, shard=3)
    if how_many == "one":  # of two that remain one is spoilt again; of one that remains it is the sample's fault
        said = "^None of the 3 samples could be used: generic_attention gives NaN or infinite scores.$"
        with pytest.raises(NoUsableSample, match=said):
            run_suite(suite, tmp_path / "out", quiet=True)
        return
    out = run_suite(suite, tmp_path / "out", quiet=True)
    left_out = {row["method"]: row["text"] for row in read_records(out, "rows") if row["measure"] == "left out"}
    assert [sample["error"] for sample in read_records(out, "samples")] == [None] * 3
    assert left_out == {"generic_attention": "It gives NaN or infinite scores on all samples of a shard."}


def test_maps_of_pixels_are_kept_as_means_of_cells(suite, vit, pets, tmp_path, monkeypatch):
    from whyformer.benchmark import tables

    monkeypatch.setattr(tables, "MAP_SIDE", 8)
    document = {**suite.document, "methods": ["input_x_gradient", "rollout"], "samples": 2}
    out = run_suite(make_suite(document), tmp_path / "out", quiet=True)
    kept = {(r["sample"], r["method"]): r for r in read_records(out, "explanations")}
    sides = {method: (record["rows"], record["columns"]) for (_, method), record in kept.items()}
    loaded_model, (first, *_) = load(vit), read_records(out, "samples")
    image = Image.open(pets / "images" / f"{first['name']}.png")
    pixels = loaded_model.image_processor(images=image, return_tensors="pt")["pixel_values"]
    scores = attribute(loaded_model.model, {"pixel_values": pixels}, "predicted", "input_x_gradient")
    assert sides == {"input_x_gradient": (8, 8), "rollout": (4, 4), "random": (4, 4)}
    cells = scores["pixels"].reshape(8, 4, 8, 4).mean(dim=(1, 3))
    np.testing.assert_allclose(kept[first["sample"], "input_x_gradient"]["scores"], cells.flatten(), atol=1e-6)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_out_of_memory_halves_the_batch_and_goes_on(suite, tmp_path, monkeypatch, error):
    run_suite(suite, tmp_path / "whole", quiet=True)
    from whyformer.benchmark import sample_targets

    asked, plain = [], sample_targets.logits_of

    def fails(output, place=None):
        logits = plain(output, place)
        asked.append(len(logits))
        if len(logits) > 5:
            raise error("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return logits

    monkeypatch.setattr(sample_targets, "logits_of", fails)
    run_suite(suite, tmp_path / "out", quiet=True)
    assert max(asked) > 5
    assert sum(count > 5 for count in asked) <= 6  # what did not fit once is not tried again
    whole, halved = (read_records(tmp_path / name, "rows") for name in ("whole", "out"))
    assert len(whole) == len(halved)
    for one, other in zip(whole, halved, strict=True):
        assert (one["sample"], one["method"], one["measure"]) == (other["sample"], other["method"], other["measure"])
        np.testing.assert_allclose(other["values"], one["values"], atol=1e-5)


@pytest.mark.parametrize("what", ["removed_pixels", "blanked"])
def test_out_of_memory_while_inputs_are_perturbed_halves_the_batch_too(suite, tmp_path, monkeypatch, what):
    suite = replace(suite, shard=6, batch=16)
    run_suite(suite, tmp_path / "whole", quiet=True)
    from whyformer.benchmark.protocols import perturbation

    plain, made, masks = getattr(perturbation, what), [], []

    def fails(first, *others, **options):
        if what == "removed_pixels":
            masks.append(others)
            if len(masks) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
        else:
            made.append(others[0].shape[:2])
            if made[-1].numel() > 4:
                raise torch.OutOfMemoryError("CUDA out of memory.")
        return plain(first, *others, **options)

    monkeypatch.setattr(perturbation, what, fails)
    run_suite(suite, tmp_path / "out", quiet=True)
    if what == "blanked":  # two steps of six samples, one step, and then four and two samples of a step
        assert made[:5] == [(2, 6), (1, 6), (1, 4), (1, 2), (1, 4)]
        assert max(shape.numel() for shape in made[2:]) == 4
    else:  # of five methods and controls in two orders, the first was tried twice
        assert len(masks) == 11
    whole, halved = (read_records(tmp_path / name, "rows") for name in ("whole", "out"))
    for one, other in zip(whole, halved, strict=True):
        assert (one["sample"], one["method"], one["measure"]) == (other["sample"], other["method"], other["measure"])
        np.testing.assert_allclose(other["values"], one["values"], atol=1e-5)


@pytest.mark.parametrize(
    ("size", "expected"), [(7, [6, 4]), (6, [6, 4]), (5, [3, 3, 3, 1]), (2, [2, 1, 2, 1, 2, 1, 1]), (99, [10])]
)
def test_parts_hold_whole_units_or_lie_within_one(size, expected):
    assert [part.stop - part.start for part in MemoryLimit(size).map_slices(10, lambda part: part, unit=3)] == expected


def test_a_slice_holds_no_more_than_is_worthwhile_and_memory_lowers_both():
    limit, tried = MemoryLimit(8), []

    def fails(part):
        tried.append(part.stop - part.start)
        if tried[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return part

    assert [part.stop - part.start for part in limit.map_slices(5, fails, most=4)] == [2, 2, 1]
    assert (tried, limit.size) == ([4, 2, 2, 1], 2)
    with pytest.raises(torch.OutOfMemoryError):
        MemoryLimit(8).map_slices(5, lambda part: fails(slice(0, 9)), most=1)


def test_explanations_hold_graphs_of_no_more_inputs_than_fill_the_device(suite, tmp_path, monkeypatch):
    from whyformer.benchmark import method_maps
    from whyformer.tracing import path

    suite = replace(suite, shard=6, methods=make_suite(suite.document | {"methods": ["bi_token"]}).methods)
    run_suite(suite, tmp_path / "whole", quiet=True)
    monkeypatch.setitem(path.TOKENS_AT_ONCE, "cpu", 3 * 17)  # three pictures of tiny-vit
    score_batch, at_once = method_maps.score_batch, []

    def recorded(loaded_model, inputs, *rest, inputs_at_once):
        at_once.append((len(inputs["pixel_values"]), inputs_at_once))
        return score_batch(loaded_model, inputs, *rest, inputs_at_once=inputs_at_once)

    monkeypatch.setattr(method_maps, "score_batch", recorded)
    run_suite(suite, tmp_path / "out", quiet=True)
    assert at_once == [(3, 3), (3, 3)] * 2
    assert_same_tables(tmp_path / "out", tmp_path / "whole")


def test_other_errors_and_a_single_input_that_does_not_fit_are_errors():
    def fails(part):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        MemoryLimit(4).map_slices(4, fails)

    def breaks(part):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        MemoryLimit(4).map_slices(4, breaks)


WRONG = [
    ({"modle": "mini-vit"}, r"A suite has no 'modle'. Did you mean 'model'"),
    ({"model": None}, "The suite names no model"),
    ({"plugins": ["my_readers.py"]}, "A suite has no 'plugins'"),  # a file of data must not name programs to run
    ({"methods": ["rolout"]}, r"No method named 'rolout'. Did you mean 'rollout'"),
    ({"methods": [{"name": "rollout", "depth": 2}]}, "rollout has no option 'depth'"),
    ({"methods": [{"name": "generic_attention", "backward": "up"}]}, "backward='up'. Choose from: gradient, libra"),
    ({"methods": ["rollout", "rollout"]}, "The method 'rollout' is named twice"),
    ({"methods": [3]}, "A method is its name, or a table"),
    ({"protocols": ["perturbation"]}, r"No protocol named 'perturbation'. Did you mean"),
    ({"protocols": [{"name": "image_perturbation", "fill": "pink"}]}, "fill='pink'. Choose from: black, mean, road"),
    ({"protocols": [{"name": "segmentation", "depth": 1}]}, "segmentation has no option 'depth'. It takes: explained"),
    ({"data": {"reader": "petz"}}, "No reader named 'petz'"),
    ({"data": {"folder": "pets"}}, "data names its reader"),
    ({"data": {"reader": "oxford_pets"}}, "oxford_pets needs folder"),
    ({"data": {"reader": "oxford_pets", "folder": 3}}, "oxford_pets: folder=3 is not a path"),
    ({"data": {"reader": "imagenet", "folder": "val", "per_class": "5"}}, "imagenet: per_class='5' is not of type int"),
    ({"samples": 0}, "samples = 0: a whole number, 1 or more"),
    ({"shard": "many"}, "shard = 'many': a whole number"),
    ({"labels": ["cat"]}, "labels must be a table"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_is_wrong_with_a_suite_is_said(suite, change, message):
    with pytest.raises(WhyformerError, match=message) as caught:
        make_suite({**suite.document, **change})
    assert "\n" not in str(caught.value)


def test_a_suite_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(WhyformerError, match=r"The suite '.*none.toml' cannot be read"):
        read_suite(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("model = ")
    with pytest.raises(WhyformerError, match=r"bad.toml' is not valid TOML"):
        read_suite(tmp_path / "bad.toml")


def test_random_and_all_are_what_they_say(suite):
    document = {**suite.document, "methods": ["all", {"name": "rollout", "first_block": 1}]}
    from whyformer.methods.registry import trace_methods

    labels = [choice.label for choice in make_suite(document).methods]
    assert labels == [*trace_methods(), "rollout first_block=1"]
    assert make_suite({**document, "methods": ["rollout"]}).methods[-1].name == "random"


def test_paths_are_taken_from_the_data_folder(vit, pets, tmp_path):
    document = {"model": vit.name, "data": {"reader": "oxford_pets", "folder": "pets"}, **SETTINGS, "samples": 1}
    place = tmp_path / "place"
    place.mkdir()
    (place / "pets").symlink_to(pets)
    (place / vit.name).symlink_to(vit)
    out = run_suite(make_suite(document), tmp_path / "out", data=place, quiet=True)
    assert str(place) not in (out / "suite.json").read_text()
    assert len(read_records(out, "samples")) == 1


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_committed_suites_can_be_read_and_name_no_machine(path):
    read = read_suite(path)
    assert not any(str(value).startswith(("/", "~", ".")) for value in read.data.options.values())
    assert path.read_text().startswith(("# Results ", "# Options: "))


def test_tables_are_plain_parquet(suite, tmp_path):
    out = run_suite(replace(suite, samples=2), tmp_path / "out", quiet=True)
    table = pq.read_table(out / "rows")
    assert table.column_names == ["sample", "protocol", "method", "measure", "values", "at", "text"]
    assert table.num_rows == len(read_records(out, "rows"))


# In a process of its own: what Ray starts ends with it, and leaves the other tests alone. It runs one suite after
# another, each with workers of which one is killed so many times in the midst of shard 1; then a survey that is
# stopped and goes on.
DRIVER = """
import contextlib, io, json, os, signal, sys
from pathlib import Path
import ray
from whyformer import WhyformerError, survey
from whyformer.benchmark.engines import ray as cluster
from whyformer.benchmark import run_suite

def mortal(folder, deaths):
    class Mortal(cluster_worker):
        def tables(self, number):
            found = super().tables(number)
            if number == 1 and not isinstance(found, str):
                with open(f"{folder}/mark", "a") as mark:
                    mark.write("x")
                if os.path.getsize(f"{folder}/mark") <= deaths:
                    os.kill(os.getpid(), signal.SIGKILL)
            with open(f"{folder}/loaded", "a") as loaded:
                loaded.write(f"{os.getpid()} {id(self.worker)} {number}\\n")
            return found

    return Mortal

cluster_worker = cluster.RayWorker
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
for folder, deaths in json.loads(sys.argv[1]).items():
    cluster.RayWorker = mortal(folder, deaths)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            run_suite(f"{folder}/suite.toml", f"{folder}/ray", engine="ray")
        except WhyformerError as error:
            print(f"whyformer: {error}", file=sys.stderr)
    Path(folder, "said").write_text(said.getvalue())

films, journal = Path(sys.argv[2], "films.csv"), Path(sys.argv[2], "ray.jsonl")

def stop(stage, done, total):
    if stage == "removing" and done == 5:
        raise InterruptedError

with contextlib.suppress(InterruptedError):
    survey("mini-bert", films, engine="ray", journal=journal, watch=stop)
Path(sys.argv[2], "stopped.jsonl").write_bytes(journal.read_bytes())
survey("mini-bert", films, engine="ray", journal=journal).save(Path(sys.argv[2], "ray.json"))
assert ray.is_initialized()  # a connection made before is left open
"""
FILMS = ["a wonderful film", "a dull film, I fear", "a wonderful cast and a fine story", "a weak story and a dull end"]


@pytest.fixture(scope="module")
def on_two_workers(vit, pets, tmp_path_factory):
    """The folders of two runs on one Ray: a worker is killed at every try of a shard, or once; and of a survey."""
    data = {"reader": "oxford_pets", "folder": str(pets)}
    suite = make_suite({"model": str(vit), "data": data, **SETTINGS})
    runs = {100: suite, 1: replace(suite, samples=8, shard=1)}
    folders = {deaths: tmp_path_factory.mktemp("ray") for deaths in runs}
    for deaths, folder in folders.items():
        (folder / "suite.toml").write_text(as_toml(runs[deaths]))
    deaths_by_folder = json.dumps({str(folder): deaths for deaths, folder in folders.items()})
    surveyed = tmp_path_factory.mktemp("survey")
    rows = [f'"{text} {number}"\n' for number in range(10) for text in FILMS]
    (surveyed / "films.csv").write_text("text\n" + "".join(rows))
    command = [sys.executable, "-c", DRIVER, deaths_by_folder, str(surveyed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    runs = {deaths: (folder, (folder / "said").read_text()) for deaths, folder in folders.items()}
    return runs | {"survey": surveyed}


def test_what_is_wrong_on_a_cluster_is_said_as_it_is_here(suite, tmp_path, monkeypatch):
    from whyformer.benchmark.engines import ray as cluster

    class Counted:
        """In place of an actor."""

        def __init__(self):
            self.count, self.remote = self, cluster.AttemptCounter().count

    monkeypatch.setattr(ray, "get", lambda found: found)
    unfit = make_suite({**suite.document, "protocols": ["rationales"]})
    for wrong in (unfit, replace(suite, model="no-such-model")):
        with pytest.raises(WhyformerError) as caught:
            run_suite(wrong, tmp_path / wrong.protocols[0].name, quiet=True)
        assert cluster.RayWorker(wrong, str(tmp_path), Counted()).tables(0) == str(caught.value)


def test_a_shard_that_always_kills_its_worker_ends_the_run_after_a_few_tries(on_two_workers):
    folder, printed = on_two_workers[100]
    said = "whyformer: Shard 1 was tried 3 times, and each time its worker was lost"
    assert sum(line.startswith(said) for line in printed.splitlines()) == 1, printed
    assert (folder / "mark").read_text() == "xxx"
    assert {path.stem for path in (folder / "ray" / "rows").iterdir()} == {"00000", "00002"}


def test_two_workers_one_killed_half_way_give_the_tables_of_a_local_run(on_two_workers, suite, tmp_path):
    run_suite(replace(suite, samples=8, shard=1), tmp_path / "local", quiet=True)
    folder, printed = on_two_workers[1]
    assert "whyformer: " not in printed
    assert (folder / "mark").read_text() == "xx"
    assert [line.partition(",")[2] for line in printed.splitlines() if line.startswith("shard ")] == [
        f" {number} of 8" for number in range(1, 9)
    ]
    loaded = [line.split() for line in (folder / "loaded").read_text().splitlines()]
    assert sorted(int(number) for *_, number in loaded) == list(range(8))
    workers = {(process, worker) for process, worker, _ in loaded}
    assert 2 <= len(workers) == len({process for process, _ in workers}) <= 3  # the model is loaded once in each
    assert_same_tables(folder / "ray", tmp_path / "local")


def test_a_survey_that_was_stopped_on_two_workers_is_the_same_as_here(on_two_workers):
    folder = on_two_workers["survey"]
    here = survey("mini-bert", folder / "films.csv", journal=folder / "here.jsonl")
    there = Survey.load(folder / "ray.json")
    assert "wonderful" in {driver.cue.name for driver in there.drivers}
    assert replace(there, seconds=0) == replace(here, seconds=0)
    stopped, whole = ((folder / name).read_text().splitlines() for name in ("stopped.jsonl", "ray.jsonl"))
    assert whole[: len(stopped)] == stopped
    assert sum(line.startswith('{"kind": "effects"') for line in stopped) == 5
    assert whole == (folder / "here.jsonl").read_text().splitlines()  # byte for byte, in the same order


@pytest.mark.parametrize("kind", ["picture", "text"])
def test_every_sample_is_preprocessed_once(suite, bert, tmp_path, monkeypatch, kind):
    sizes = []

    def counting(plain, count):
        def call(self, *args, **options):
            sizes.append(count(*args, **options))
            return plain(self, *args, **options)

        return call

    if kind == "picture":
        processor = transformers.ViTImageProcessorPil
        monkeypatch.setattr(processor, "__call__", counting(processor.__call__, lambda images, **_: len(images)))
    else:
        (tmp_path / "films.csv").write_text("text,label\n" + "a great film,good\nthe bad film,bad\n" * 3)
        document = {"model": str(bert), "data": {"reader": "table", "path": str(tmp_path / "films.csv")}}
        suite = make_suite({**document, "methods": ["rollout"], "protocols": ["text_perturbation"], "shard": 2})
        tokenizer = transformers.BertTokenizerFast
        monkeypatch.setattr(tokenizer, "__call__", counting(tokenizer.__call__, lambda *texts, **_: 1))
        encode(load(bert), ["a great film"])
    once = sum(sizes) or 1  # a text is counted and then cut up
    sizes.clear()
    out = run_suite(suite, tmp_path / "out", quiet=True)
    assert sum(sizes) == 6 * once
    assert len(read_records(out, "samples")) == 6


def test_of_a_batch_that_cannot_be_made_only_the_sample_at_fault_is_lost(suite, tmp_path, monkeypatch):
    from whyformer.benchmark import batch

    plain = batch.model_inputs

    def breaks(loaded_model, encodings):
        if any(encoding.parts["image"].image.getpixel((0, 0)) == first_pixel for encoding in encodings):
            raise RuntimeError("The processor stumbles")
        return plain(loaded_model, encodings)

    pets = Path(suite.data.options["folder"])
    first_pixel = Image.open(pets / "images" / "cat_3.png").getpixel((0, 0))
    monkeypatch.setattr(batch, "model_inputs", breaks)
    out = run_suite(replace(suite, samples=8), tmp_path / "out", quiet=True)
    errors = {sample["name"]: sample["error"] for sample in read_records(out, "samples") if sample["error"]}
    assert errors == {"cat_3": "The processor stumbles"}


def scaled(weights):
    return {name: value * 1.5 for name, value in weights.items()}


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("change", ["weights", "configuration or processor", "data"])
def test_a_run_does_not_go_on_with_another_model_or_other_data(
    suite, vit, pets, copy_of, tmp_path, change, is_finished
):
    model, data = copy_of(vit, "model"), shutil.copytree(pets, tmp_path / "pets")
    document = {**suite.document, "model": "model", "data": {"reader": "oxford_pets", "folder": "pets"}}
    out = run_suite(make_suite(document), tmp_path / "out", data=tmp_path, quiet=True)
    if not is_finished:
        forget_shard(out, 2)
    before = bytes_of(out)
    if change == "weights":
        change_weights(model, scaled)
    elif change == "data":
        save_noise(data / "images" / "cat_1.png", seed=99, width=40, height=36)
    else:
        settings = json.loads((model / "preprocessor_config.json").read_text())
        (model / "preprocessor_config.json").write_text(json.dumps(settings | {"image_mean": [0.1, 0.2, 0.3]}))
    owner = "'oxford_pets'" if change == "data" else "'model'"
    said = rf"out' holds results from before the {change} of {owner} changed \(started \d{{4}}-\d\d-\d\d \d\d:\d\d\)"
    with pytest.raises(WhyformerError, match=f"{said}: choose another folder.$"):
        run_suite(make_suite(document), out, data=tmp_path, quiet=True)
    assert bytes_of(out) == before


def test_a_run_of_a_version_without_digests_is_read_but_not_gone_on_with(suite, tmp_path):
    from whyformer.benchmark import report

    out = run_suite(suite, tmp_path / "out", quiet=True)
    make_old(out)
    old = json.loads((out / "suite.json").read_text())
    (out / "suite.json").write_text(json.dumps({key: value for key, value in old.items() if key != "digests"}))
    assert "changes cannot be detected" in report(out).read_text()
    before = bytes_of(out)
    assert run_suite(suite, out, quiet=True) == out  # there is nothing left to do
    assert bytes_of(out) == before
    assert "changes cannot be detected" not in report(out).read_text(), "from now on it is"
    (out / "manifest.sha256").unlink()
    (out / "rows" / "00001.parquet").unlink()
    with pytest.raises(WhyformerError, match="did not record all of its inputs: choose another folder"):
        run_suite(suite, out, quiet=True)


def test_a_run_beside_its_data_is_gone_on_with(suite, pets, tmp_path):
    data = shutil.copytree(pets, tmp_path / "pets")
    inside = make_suite({**suite.document, "data": {"reader": "oxford_pets", "folder": str(data)}})
    out = run_suite(inside, data / "results", quiet=True)
    before = shutil.copytree(out, tmp_path / "before")
    (out / "rows" / "00001.parquet").unlink()
    assert_same_tables(run_suite(inside, out, quiet=True), before)


@pytest.mark.parametrize("count", [10**11, 0, 10**11 * 1.0])
def test_more_scenes_than_memory_holds_are_refused(tmp_path, count):
    document = {"model": "mini-lxmert", "data": {"reader": "scenes", "count": count}, "methods": ["rollout"]}
    said = "count is .*: (at most 100,000 scenes|give at least one)|scenes: count=100000000000.0 is not of type int"
    with pytest.raises(WhyformerError, match=said):
        run_suite(make_suite({**document, "protocols": ["localisation"]}), tmp_path / "out", quiet=True)


@pytest.mark.parametrize("name", ["no-such-model", "no such model!", "nobody/no-such-model"])
def test_a_model_that_is_none_is_said_so_before_anything_is_written(suite, tmp_path, name):
    with pytest.raises(WhyformerError, match=f"No model {name!r}") as caught:
        run_suite(replace(suite, model=name), tmp_path / "out", quiet=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_usable_sample_gives_the_most_frequent_reason(suite, pets, tmp_path):
    copied = shutil.copytree(pets, tmp_path / "pets")
    for path in sorted((copied / "images").iterdir()):
        path.write_bytes(b"no picture")
    path.write_bytes(b"")
    document = {**suite.document, "samples": None, "data": {"reader": "oxford_pets", "folder": str(copied)}}
    said = "^None of the 8 samples could be used, 7 of them for this reason: The file '.*cat_1.png' is not an image"
    with pytest.raises(NoUsableSample, match=said):
        run_suite(make_suite(document), tmp_path / "out", quiet=True)
