"""The controls: each against a plain loop, and each with the answer it must give where that is known."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tiny_models import FAMILIES, STREAM_FAMILIES, inputs_of
from whyformer import UnsupportedModel, WhyformerError, attribute, extras
from whyformer.inputs.road_imputation import imputed
from whyformer.metrics.approximation import approximation_errors
from whyformer.metrics.perturbation_curves import curves, step_logits
from whyformer.metrics.removal import groups, removed_pixels
from whyformer.metrics.sanity import (
    other_class,
    randomised,
    rank_correlation,
    saco,
    stages,
)
from whyformer.metrics.statistics import Interval, OfTotals, holm, interval, paired_comparison
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rank_correlation_is_spearmans():
    first, second = noise(4, 9).round(decimals=0), noise(4, 9, seed=1)
    for one, other, found in zip(first, second, rank_correlation(first, second), strict=True):
        assert found.item() == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation(first, first).tolist() == pytest.approx([1.0] * 4)
    assert rank_correlation(first, torch.zeros(4, 9)).tolist() == [0.0] * 4


def test_a_method_blind_to_the_class_has_no_class_sensitivity():
    model, inputs = FAMILIES["vit"](), inputs_of("vit")
    logits = model(**inputs).logits.detach()
    classes = logits.argmax(dim=1), other_class(logits)
    assert all(row[second] == row.sort().values[-2] for row, second in zip(logits, classes[1], strict=True))
    assert all(row[last] == row.min() for row, last in zip(logits, other_class(logits, "last"), strict=True))
    for method, is_blind in (("rollout", True), ("generic_attention", False)):
        maps = [attribute(model, inputs, chosen, method)["image"] for chosen in classes]
        differs = 1 - rank_correlation(*maps)
        assert torch.allclose(differs, torch.zeros_like(differs), atol=1e-9) == is_blind


def test_a_model_is_forgotten_from_the_output_down_and_itself_stays():
    model, inputs = FAMILIES["vit"](), inputs_of("vit")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    blocks = [f"vit.layers.{n}" for n in range(3)] if hasattr(model.vit, "layers") else None
    names, changed = [], []
    for name, copy in randomised(model):
        names.append(name)
        changed.append({key for key, value in copy.state_dict().items() if not torch.equal(value, before[key])})
        assert torch.isfinite(copy(**inputs).logits).all()
        assert torch.is_grad_enabled()
    assert names == [name for name, _ in reversed(stages(model))]
    assert len(names) == 5
    assert blocks is None or names[1:4] == blocks[::-1]
    assert all(key.startswith(("vit.layernorm", "classifier")) for key in changed[0])
    assert all(less < more for less, more in pairwise(changed))
    assert changed[-1] == {key for key, value in before.items() if value.numel() > 1}
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_forgetting_is_the_same_for_the_same_seed():
    first, second = (
        next(copy.state_dict()["classifier.weight"].clone() for _, copy in randomised(FAMILIES["vit"](), seed=seed))
        for seed in (3, 3)
    )
    assert torch.equal(first, second)


def test_the_blocks_of_a_plain_sequence_are_its_modules():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    assert [name for name, _ in stages(model)] == ["0", "1"]


@given(st.lists(st.floats(0, 1, width=32), min_size=9, max_size=9), st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_saco_is_that_of_a_loop_over_pairs_of_groups(scores, drops):
    heat, members = torch.tensor([scores]).double(), groups(torch.tensor([scores]), 4)
    salience = [heat[0][group[0]].sum().item() for group in members]
    signed = total = 0.0
    for i, j in combinations(range(4), 2):
        weight = salience[i] - salience[j]
        signed += weight if drops[i] >= drops[j] else -weight
        total += abs(weight)
    found = saco(heat, members, torch.tensor([drops], dtype=torch.float64)).item()
    assert found == pytest.approx(signed / total if total else 0.0, abs=1e-6)
    assert -1 - 1e-9 <= found <= 1 + 1e-9


def test_saco_is_one_where_the_drops_follow_the_salience_and_minus_one_where_they_oppose_it():
    scores = torch.arange(10.0).flip(0)[None]
    members = groups(scores, 5)
    drops = torch.arange(5.0).flip(0)[None]
    assert saco(scores, members, drops).item() == 1
    assert saco(scores, members, -drops).item() == -1


def test_groups_are_asked_without_one_at_a_time():
    weights = torch.tensor([4.0, 3, 2, 1, 0.4, 0.3, 0.2, 0.1])

    def forward(x):
        total = (x * weights).sum(dim=1)
        return torch.stack([total, torch.zeros_like(total)], dim=1)

    x, scores = torch.ones(2, 8), weights.expand(2, -1)
    members = groups(scores, 4)
    label = torch.zeros(2, dtype=torch.long)
    clean = forward(x).softmax(dim=1)[:, :1]
    without = curves(step_logits(forward, x.where(~members, 0.0)), label, label).probability
    assert saco(scores, members, clean - without).tolist() == [1.0, 1.0]


def test_an_imputed_pixel_is_the_weighted_mean_of_its_neighbours():
    pixels = noise(2, 3, 7, 6)
    gone = removed_pixels(noise(2, 7, 6, seed=1), (7, 6), [0.0, 0.3, 0.8])
    filled = imputed(pixels.double(), gone, noise=0.0)
    assert torch.equal(filled[0], pixels.double())
    for step, marks in zip(filled, gone, strict=True):
        for image, mask in zip(step, marks, strict=True):
            for y, x in mask.nonzero().tolist():
                total, weights = torch.zeros(3).double(), 0.0
                for b, a in ((b, a) for b in range(y - 1, y + 2) for a in range(x - 1, x + 2) if (b, a) != (y, x)):
                    if 0 <= b < 7 and 0 <= a < 6:
                        weight = 1 / 6 if b == y or a == x else 1 / 12
                        total, weights = total + weight * image[:, b, a], weights + weight
                torch.testing.assert_close(image[:, y, x], total / weights, atol=1e-9, rtol=1e-9)


def test_imputation_leaves_what_is_there_and_adds_a_little_noise_to_the_rest():
    pixels, gone = noise(2, 3, 16, 16), removed_pixels(noise(2, 16, 16, seed=1), (16, 16), [0.5, 1.0])
    filled, smooth = imputed(pixels, gone), imputed(pixels, gone, noise=0.0)
    kept = ~gone[:, :, None].expand_as(filled)
    assert torch.equal(filled[kept], pixels.expand_as(filled)[kept])
    assert (filled - smooth)[~kept].std().item() == pytest.approx(0.01, rel=0.1)
    alone = imputed(pixels[1:], gone[:, 1:])
    torch.testing.assert_close(alone, filled[:, 1:], rtol=1e-5, atol=1e-6)
    assert not smooth[1].any()


def twin_errors(model, inputs, blocks, target):
    """Block by block, token by token and head by head, from the states that hooks see."""
    states, handles = [], []
    for block in blocks:
        handles.append(
            block.register_forward_hook(
                lambda _, args, out: states.append((args[0], out if torch.is_tensor(out) else out[0]))
            )
        )
    records = trace(model, inputs, target, reads=Reads(maps="all", gradients="all")).records
    weights = trace(model, inputs, target, reads=Reads(maps="all", states=True)).records
    for handle in handles:
        handle.remove()
    states = [(before.detach(), after.detach()) for before, after in states[: len(blocks)]]
    found = {name: [] for name in ("rollout", "token", "head", "none")}
    for number in range(len(blocks) - 1):
        before, after = states[number]
        attention, gradient = records[number].map, records[number].gradient
        linears = [m for m in blocks[number].modules() if isinstance(m, torch.nn.Linear)]
        inner, outer = (m.weight.detach().T for m in linears[-2:])
        scales = [p.detach() for n, p in blocks[number].named_parameters() if "lambda" in n]
        per_example = {name: [] for name in found}
        for example in range(len(before)):
            z, a, g = before[example], attention[example], gradient[example]
            carried = z @ weights[number].value_weight.T @ weights[number].output_weight.T
            alpha = carried.norm(dim=1) / z.norm(dim=1)
            importance = torch.stack([(x * y).sum().abs() for x, y in zip(a, g, strict=True)])
            mean = sum(a) / len(a)
            mixings = {
                "rollout": mean,
                "token": mean @ torch.diag(alpha),
                "head": sum(share * x for share, x in zip(importance / importance.sum(), a, strict=True)),
                "none": torch.zeros_like(mean),
            }
            for name, mixing in mixings.items():
                mixed = mixing @ z + z
                moved = mixed @ inner @ outer
                moved = moved * scales[-1] if scales else moved
                real = inputs.get("attention_mask", torch.ones(len(before), len(z)))[example].bool()
                per_example[name].append((after[example] - mixed - moved)[real].square().sum())
        for name, values in per_example.items():
            found[name].append(torch.stack(values))
    return {name: torch.stack(values, dim=1) for name, values in found.items()}


@pytest.mark.parametrize(
    ("family", "path"), [("vit", "vit"), ("dinov2", "dinov2"), ("beit mean", "beit"), ("bert", "bert")]
)
def test_approximation_errors_are_those_of_a_plain_loop(family, path):
    model = FAMILIES[family]().double()
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs_of(family).items()}
    blocks = max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 3), key=len)
    found = approximation_errors(model, inputs, 1)
    for name, expected in twin_errors(model, inputs, blocks, 1).items():
        torch.testing.assert_close(found[name], expected, rtol=1e-8, atol=1e-8)


def test_the_approximation_is_exact_where_attention_and_mlp_do_nothing():
    model, inputs = FAMILIES["vit"](), inputs_of("vit")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("layer" in name and parameter.dim() == 2 and "embed" not in name) or ".bias" in name:
                parameter.zero_()
    errors = approximation_errors(model, inputs, 1)
    assert errors["none"].max() < 1e-9
    assert errors["token"].max() < 1e-9
    assert errors["rollout"].min() > 1


def test_a_gated_mlp_is_refused():
    with pytest.raises(UnsupportedModel, match="has no plain MLP of two linear layers"):
        approximation_errors(FAMILIES["modernbert"](), inputs_of("modernbert"), 1)


@pytest.mark.parametrize("family", ["clip", "lxmert"])
def test_the_approximation_of_several_streams_is_refused(family):
    made, inputs = STREAM_FAMILIES[family]
    model = made()
    target = None if family == "clip" else 1
    score = (lambda output: output.logits_per_image.diagonal()) if target is None else target
    with pytest.raises(UnsupportedModel, match="has no single residual stream"):
        approximation_errors(model, inputs(), score)


def test_an_interval_holds_the_figure_and_shrinks_with_the_examples():
    values = np.random.default_rng(0).normal(size=400)
    few, many = interval(values[:40]), interval(values)
    assert few.low < few.value < few.high
    assert many.high - many.low < few.high - few.low
    half = 1.96 * values.std() / 20
    assert (many.low, many.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert interval(values) == many
    one = interval(values[:1])
    assert one.value == values[0]
    assert np.isnan(one.low)


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    drawn = (interval(rng.exponential(size=60), resamples=300, seed=n) for n in range(100))
    assert 85 <= sum(one.low <= 1 <= one.high for one in drawn) <= 100


def test_a_figure_of_the_whole_set_is_resampled_by_its_examples():
    rows = np.random.default_rng(2).integers(1, 9, (50, 2)).astype(float)

    def ratio(part):
        return part[:, 0].sum() / part[:, 1].sum()

    found = interval(rows, ratio)
    assert found.value == ratio(rows)
    assert found.low < found.value < found.high
    compared = paired_comparison(rows, rows[:, ::-1], ratio)
    assert compared.difference.value == pytest.approx(ratio(rows) - 1 / ratio(rows))


def test_a_paired_test_sees_a_small_difference_that_all_examples_share():
    rng = np.random.default_rng(3)
    first = rng.normal(size=80)
    second = first + 0.1 + 0.05 * rng.normal(size=80)
    found = paired_comparison(second, first)
    assert found.p < 0.01
    assert 0 < found.difference.low < found.difference.value < found.difference.high
    assert paired_comparison(first, rng.permutation(first)).p > 0.05
    assert paired_comparison(first, first).p == 1


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(WhyformerError, match="same examples twice"):
        paired_comparison(np.zeros(3), np.zeros(4))
    with pytest.raises(WhyformerError, match="No examples"):
        interval(np.zeros(0))
    with pytest.raises(WhyformerError, match="1 of 3 examples have no finite value"):
        interval(np.array([[0.0, 1.0], [np.nan, 1.0], [0.0, 2.0]]))
    assert interval(np.ones(5)) == Interval(1.0, 1.0, 1.0)


WITHOUT_THE_EXTRA = """
import sys
for name in "h5py matplotlib pyarrow pycocotools scipy skimage torchmetrics".split():
    sys.modules[name] = None
import pkgutil, whyformer, whyformer.data, whyformer.metrics
for module in pkgutil.iter_modules(whyformer.metrics.__path__, "whyformer.metrics."):
    __import__(module.name)
import numpy
from whyformer.metrics.rationale import auprc
try:
    auprc(numpy.arange(2.0), numpy.array([True, False]))
except whyformer.WhyformerError as error:
    print(error)
"""


def test_everything_can_be_imported_without_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True)
    assert done.stdout == "This needs torchmetrics: in the checkout, pip install -e '.[eval]'.\n"


def test_a_missing_library_is_named_with_the_extra_that_brings_it():
    said = r"^This needs nosuchlibrary: in the checkout, pip install -e '\.\[eval\]'\.$"
    with pytest.raises(WhyformerError, match=said):
        extras.extra("nosuchlibrary.part")


def test_figures_of_sums_are_tested_as_any_other_figure():
    rng = np.random.default_rng(4)
    first = rng.integers(1, 9, (200, 2)).astype(float)
    second = first + rng.integers(0, 2, (200, 2))
    fast = OfTotals(lambda totals: totals[..., 0] / totals[..., 1])
    assert fast(first) == pytest.approx(first[:, 0].sum() / first[:, 1].sum())
    for one, other in ((first, second), (first, rng.permutation(first))):
        quick, slow = paired_comparison(one, other, fast), paired_comparison(one, other, lambda rows: fast(rows))
        assert quick.difference.value == pytest.approx(slow.difference.value)
        width = slow.difference.high - slow.difference.low
        assert quick.difference.low == pytest.approx(slow.difference.low, abs=0.1 * width)
        assert quick.difference.high == pytest.approx(slow.difference.high, abs=0.1 * width)
        assert quick.p == pytest.approx(slow.p, abs=0.05)


@pytest.mark.parametrize("count", [2, 5, 8])
def test_few_examples_are_exchanged_in_all_ways(count):
    first, second = np.random.default_rng(count).normal(size=(2, count))
    exact = scipy.stats.permutation_test(
        (first, second), lambda a, b: a.mean() - b.mean(), permutation_type="samples", vectorized=False
    )
    assert paired_comparison(first, second).p == pytest.approx(exact.pvalue)


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]), ([0.5, 0.9], [1.0, 1.0]), ([], []), ([0.2], [0.2])],
)
def test_holm_counts_the_smallest_of_m_tests_m_times(p_values, corrected):
    assert holm(p_values) == pytest.approx(corrected)
