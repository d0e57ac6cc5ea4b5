"""The library against the outputs of the papers' own code, in float32 and float64, on stock sdpa models."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from test_golden_relevance import KEY as RELEVANCE_KEY

import authors
from cases import GOLDEN, Case, assert_near, case
from whyformer import attribute
from whyformer.methods.beyond_intuition import token_alpha
from whyformer.methods.perception import Reading, integrated_feedback
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace

AUTHORS_PATH = {"quadrature": "inclusive"}
METHOD_OF_KEY = {
    r"raw_attention": ("raw_attention", {}),
    r"rollout\.rownorm": ("rollout", {"normalise_rows": True}),
    r"gradcam": ("grad_cam", {}),
    r"ga\.clamp_after_mean": ("generic_attention", {"clamp": "after"}),
    r"ga\.clamp_before_mean": ("generic_attention", {"clamp": "before"}),
    r"ours_h": ("bi_head", {"importance": "matrix"} | AUTHORS_PATH),
    r"ours_t": ("bi_token", {"alpha": "values"} | AUTHORS_PATH),
}
# The mean-pooled reference averages these over the wrong axis; tests/authors.py has them.
WRONG_AXIS = {("vit_mean_pool", "raw_attention"), ("vit_mean_pool", "gradcam")}


def keys_of(name: str) -> list[str]:
    with np.load(GOLDEN / name / "expected.npz") as stored:
        keys = [key for key in stored if parsed(key) is not None]
    return [key for key in keys if (name, key.split("/")[-1]) not in WRONG_AXIS]


def parsed(key: str) -> tuple[str, dict[str, object]] | None:
    """The method and options that a key of `expected.npz` asks for."""
    for pattern, (method, options) in METHOD_OF_KEY.items():
        match = re.fullmatch(rf"{pattern}(\.first_block(?P<first>\d+))?(\.steps(?P<steps>\d+))?", key.split("/")[-1])
        if match:
            given = {"first_block": match["first"], "steps": match["steps"]}
            return method, options | {name: int(value) for name, value in given.items() if value is not None}
    return None


def inputs_and_target(golden: Case, key: str) -> tuple[dict[str, torch.Tensor], int]:
    name, *rest = key.split("/")
    target = int(rest[0][1:]) if len(rest) == 2 else 0
    if golden.name == "bert":
        return {part: golden.inputs[f"{name}/{part}"] for part in ("input_ids", "attention_mask")}, target
    return {"pixel_values": golden.inputs["pixel_values"][int(name[2:])][None]}, target


def reference_without_identity(golden: Case, key: str) -> np.ndarray:
    """The reference's array less the read-out's own residual, which the library leaves out."""
    expected = golden.expected[key].astype(np.float64)
    method, options = parsed(key) or ("", {})
    if golden.name == "vit_mean_pool" and method in ("rollout", "generic_attention"):
        blocks = 4 - int(options.get("first_block", 0))
        share = 0.5**blocks if method == "rollout" else 1.0  # each normalised row of M + I sums to 1, from 2
        expected = expected - share / 16
    return expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name in ("vit_cls", "vit_mean_pool", "vit_dino", "bert") for key in keys_of(name)]
)
def test_the_library_returns_what_the_authors_code_returned(name, key, dtype):
    golden = case(name, dtype)
    method, options = parsed(key)
    inputs, target = inputs_and_target(golden, key)
    (scores,) = attribute(golden.model, inputs, target, method, readout=golden.readout, **options).values()
    scores = scores[0].clone()
    if name == "bert":
        scores[0] = 0.0  # the reference blanks the class token's own entry
    else:
        scores = scores[1:]
    tolerance = golden.tolerance
    if name == "vit_mean_pool" and method in ("rollout", "generic_attention") and dtype == torch.float32:
        tolerance = 2e-5  # the reference's own float32 sums are dominated by the identity
    assert_near(scores, reference_without_identity(golden, key), tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_bert_grad_cam_with_whole_map_weights(dtype):
    golden = case("bert", dtype)
    keys = [key for key in golden.expected if key.endswith("gradcam.whole_map_weights.matrix")]
    assert keys
    for key in keys:
        inputs, target = inputs_and_target(golden, key)
        got = authors.grad_cam_with_whole_map_weights(trace(golden.model, inputs, target).last)[0]
        error = np.abs(got.numpy() - golden.expected[key]).max()
        assert error <= golden.tolerance * np.abs(golden.expected[key]).max() + (2e-8 if dtype == torch.float32 else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("method", "formula"),
    [("raw_attention", authors.raw_attention_over_keys), ("gradcam", authors.grad_cam_per_query)],
)
def test_the_mean_pooled_reference_averages_the_wrong_axis(method, formula, dtype):
    golden = case("vit_mean_pool", dtype)
    for key in (key for key in golden.expected if key.split("/")[-1] == method):
        inputs, target = inputs_and_target(golden, key)
        asked = trace(golden.model, inputs, target, readout="mean")
        assert_near(formula(asked.last)[0], golden.expected[key], golden.tolerance)


@pytest.mark.parametrize("name", ["vit_cls", "bert"])
def test_maps_gradients_and_token_weights_are_those_of_the_authors_code(name):
    golden = case(name, torch.float32)
    with np.load(GOLDEN / name / "records.npz") as stored:
        gradient_keys = [key for key in stored if key.endswith("/block2/grad")]
        assert gradient_keys
        for key in gradient_keys:
            example, label, block, _ = key.split("/")
            inputs, target = inputs_and_target(golden, f"{example}/{label}/x")
            record = trace(golden.model, inputs, target).records[2]
            assert_near(record.map[0], stored[f"{example}/{block}/attn"], 1e-5)
            assert_near(record.gradient[0], stored[key], 1e-5)
            states = trace(golden.model, inputs, target, reads=Reads(maps="all", states=True)).records[2]
            assert_near(states.key_state[0], stored[f"{example}/{block}/block_input"].squeeze(), 1e-5)
            assert_near(token_alpha(states, "values")[0], stored[f"{example}/{block}/alpha_token"].squeeze(), 1e-5)


@pytest.mark.parametrize("name", ["vit_cls", "vit_mean_pool", "vit_dino", "bert"])
def test_logits_of_the_recorded_run_are_those_of_the_authors_code(name):
    golden = case(name, torch.float64)
    for key in (key for key in golden.expected if key.split("/")[-1] == "logits"):
        inputs = {"pixel_values": golden.inputs.get("pixel_values")}
        if name == "bert":
            inputs, _ = inputs_and_target(golden, key)
        output = trace(golden.model, inputs, 0, readout=golden.readout).output
        assert_near(getattr(output, "logits", output), golden.expected[key], 1e-9)


def test_a_padded_batch_of_bert_equals_the_reference_row_by_row():
    golden = case("bert", torch.float64)
    inputs = {part: golden.inputs[f"batch/{part}"] for part in ("input_ids", "attention_mask")}
    with np.load(GOLDEN / "bert" / "inputs.npz", allow_pickle=False) as stored:
        names = [str(name) for name in stored["batch/input_names"]]
    scores = attribute(golden.model, inputs, 1, "bi_token", alpha="values", first_block=1, steps=20, **AUTHORS_PATH)
    for row, name in enumerate(names):
        got = scores["text"][row].clone()
        got[0] = 0.0
        assert_near(got, golden.expected[f"{name}/c1/ours_t.first_block1.steps20"], 1e-9)


RELEVANCE = re.compile(
    rf"{RELEVANCE_KEY.pattern}|logits\.lrp_model"
)  # tests/golden/test_golden_relevance.py compares it
FEEDBACK = re.compile(r"ours\.F(?P<row>_cls_row)?\.steps(?P<steps>\d+)")
PERCEPTION = re.compile(r"ours_(?P<kind>[ht])\.P\.first_block(?P<first>\d+)")
NAMES = ("vit_cls", "vit_mean_pool", "vit_dino", "bert")


def keys_like(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    found = []
    for name in NAMES:
        with np.load(GOLDEN / name / "expected.npz") as stored:
            found += [(name, key) for key in stored if pattern.fullmatch(key.split("/")[-1])]
    return found


def readings_of(asked: Trace) -> list[Reading]:
    """The last map, read at the read-out's own rows."""
    return [Reading(asked.readout.stream, asked.last, asked.readout)]


@pytest.mark.parametrize(("name", "key"), keys_like(FEEDBACK))
def test_the_feedback_is_that_of_the_authors_code(name, key):
    golden = case(name, torch.float64)
    match = FEEDBACK.fullmatch(key.split("/")[-1])
    inputs, target = inputs_and_target(golden, key)
    expected = golden.expected[key]
    everywhere = torch.ones(expected.shape[-1])
    asked = trace(golden.model, inputs, target, reads=Reads(maps="all", states=True), readout=everywhere)
    (feedback,) = integrated_feedback(asked, readings_of(asked), "inclusive", int(match["steps"]), "zero").values()
    found = feedback[0]
    order = asked.readout.rows[0][0]
    if match["row"]:
        assert_near(found[order == 0][0], expected, 1e-9)
    else:
        assert_near(found, expected[order.numpy()], 1e-9)


@pytest.mark.parametrize(("name", "key"), keys_like(PERCEPTION))
def test_the_perception_is_that_of_the_authors_code(name, key):
    golden = case(name, torch.float64)
    match = PERCEPTION.fullmatch(key.split("/")[-1])
    method, options = (
        ("bi_head", {"importance": "matrix"}) if match["kind"] == "h" else ("bi_token", {"alpha": "values"})
    )
    inputs, target = inputs_and_target(golden, key)
    for position in (0, 4):
        settings = options | {"first_block": int(match["first"]), "feedback": "none"}
        (scores,) = attribute(golden.model, inputs, target, method, readout=position, **settings).values()
        assert_near(scores[0], golden.expected[key][position], 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_every_array_of_the_authors_is_compared(name):
    with np.load(GOLDEN / name / "expected.npz") as stored:
        names = {key.split("/")[-1] for key in stored}
    compared = {key.split("/")[-1] for key in keys_of(name)} | {"logits", "gradcam.whole_map_weights.matrix"}
    compared |= {quirk for case_name, quirk in WRONG_AXIS if case_name == name}
    patterns = (RELEVANCE, FEEDBACK, PERCEPTION)
    assert not {key for key in names - compared if not any(pattern.fullmatch(key) for pattern in patterns)}
