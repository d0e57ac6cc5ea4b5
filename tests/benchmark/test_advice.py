"""Advice: the sequential test keeps its error rate, the words say what was measured, and little data is called so."""

import json
import time
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import whyformer
from whyformer import WhyformerError
from whyformer.benchmark.advice import competition
from whyformer.benchmark.advice.costs import explanation_cost
from whyformer.benchmark.advice.elimination import ERROR_RATE, Correction, Lead, leader, looks, losers
from whyformer.benchmark.advice.protocol_choice import CONTENDERS, Contest, contenders, contest_for
from whyformer.benchmark.advice.recommendation import Contender, Recommendation, advice_page, sentences
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.run_plan import RunPlan
from whyformer.benchmark.samples import Sample
from whyformer.benchmark.suite import Suite
from whyformer.benchmark.worker import Worker
from whyformer.metrics.statistics import Interval, paired_comparison

FILMS = [
    ("a wonderful film, full of warmth", "positive"),
    ("a dull and endless film", "negative"),
    ("I loved every minute of it", "positive"),
    ("a waste of time and talent", "negative"),
]


@pytest.mark.parametrize(("count", "sizes"), [(4, (4,)), (16, (16,)), (17, (16, 17)), (100, (16, 32, 64, 100))])
def test_looks_are_fixed_beforehand_and_double(count, sizes):
    assert looks(count) == sizes


def test_a_p_counts_for_every_look_and_every_other_method():
    rng = np.random.default_rng(0)
    first, second = (dict(enumerate(rng.normal(mean, 1, 20).tolist())) for mean in (0.5, 0))
    lead = Correction(methods=4, looks=3).lead(first, second)
    plain = paired_comparison(np.array(list(first.values())), np.array(list(second.values())), resamples=10_000)
    assert lead.p == pytest.approx(min(1, 9 * plain.p))
    assert lead.difference.value == pytest.approx(plain.difference.value)
    assert lead.samples == 20
    assert Correction(2, 1).lead({0: 1.0}, {0: 0.0}) is None


def test_of_methods_that_are_alike_hardly_one_is_ever_dropped():
    """Over all looks together one of five equal methods is dropped in no more than the error rate of the runs."""
    rng, wrong, runs = np.random.default_rng(1), 0, 60
    for _ in range(runs):
        values = {f"m{n}": dict(enumerate(rng.normal(0, 1, 64).tolist())) for n in range(5)}
        correction = Correction(methods=5, looks=len(looks(64)))
        for size in looks(64):
            part = {m: {s: v for s, v in each.items() if s < size} for m, each in values.items()}
            if losers(part, list(part), correction):
                wrong += 1
                break
    assert wrong / runs <= 2 * ERROR_RATE  # five ways to be wrong instead of one, and few runs


def test_a_method_that_is_clearly_behind_is_dropped_and_a_better_one_leads():
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.1, 32)
    means = {"best": 1.0, "near": 0.99, "far": 0.0}
    values = {name: dict(enumerate((mean + noise * (name != "near")).tolist())) for name, mean in means.items()}
    assert leader(values, list(values)) == "best"
    assert list(losers(values, list(values), Correction(3, 2))) == ["far"]


def advice(**changes):
    lead = Lead(Interval(0.10, 0.05, 0.15), 0.001, 32)
    near = Lead(Interval(0.01, -0.02, 0.04), 0.8, 32)
    rows = (
        Contender("evidence", 0.7, 0.6, 0.8, 32, cost=2.5, seconds=0.02),
        Contender("lrp rules=attn_lrp", 0.69, 0.6, 0.8, 32, cost=1.5, seconds=0.01, behind=near),
        Contender("rollout", 0.2, 0.1, 0.3, 16, cost=1.1, seconds=0.01, behind=lead, dropped_after=16),
        Contender("random", 0.1, 0.0, 0.2, 32, behind=lead, is_control=True),
    )
    known = {
        "model": "mini-bert", "method": "evidence", "options": {}, "protocol": "text_perturbation", "figure": "gap",
        "question": "what goes", "contenders": rows, "samples": 32, "available": 100, "seconds": 61.2, "looks": 4,
        "is_share": True, "most": 0.9, "worst": (("film 3", -0.2),),
    }  # fmt: skip
    return Recommendation(**known | changes)


def test_the_advice_in_words_says_what_how_surely_at_what_cost_and_where_it_fails():
    use, decided, second, cost, controls, fails = sentences(advice())
    assert use == "Use evidence: whyformer.explain(example, model='mini-bert', method='evidence')"
    assert "70.0 of 90.0 [60.0, 80.0] on 32 of 100 samples, in 61 s." in decided
    assert "lrp rules=attn_lrp, behind by 1.0 [-2.0, 4.0]: not told apart from it." in second
    assert "The cheapest of these is lrp rules=attn_lrp, 1.5 times the time of an answer." in second
    assert cost == "An explanation takes 2.5 times the computing time of a plain answer, 0.02 s here."
    assert controls == "Controls: random (10.0) is surely beaten."
    assert fails == "Where it fails: film 3 (-20.0). Look at these before you trust it."


def test_where_no_control_is_beaten_or_samples_are_few_the_advice_is_none():
    unsure = Lead(Interval(0.01, -0.1, 0.1), 1.0, 32)
    rows = (*advice().contenders[:3], Contender("random", 0.69, 0.5, 0.8, 32, behind=unsure, is_control=True))
    lines = sentences(advice(contenders=rows))
    assert lines[0].startswith("No method is significantly better than a control that knows nothing of mini-bert")
    assert "random (69.0) is NOT surely beaten" in lines[4]
    assert sentences(advice(samples=5))[0].startswith("A hint, no more: evidence came first, but 5 samples cannot tell")


def test_the_page_and_the_json_hold_the_advice_and_escape_what_they_show():
    result = advice(model="<b>model</b>", worst=(("<script>", -0.2),))
    text = advice_page(result)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    document = json.loads(json.dumps(result.to_json()))
    assert document["beats_controls"] is True
    assert document["ties"] == ["lrp rules=attn_lrp"]
    assert document["contenders"][2]["dropped_after"] == 16


def test_the_better_of_two_methods_is_recommended_and_what_was_measured_is_what_evaluate_measures(tmp_path):
    films = [(f"{text}, {n}", label) for n in range(4) for text, label in FILMS]
    methods = ["input_x_gradient", "rollout"]
    result = whyformer.recommend("mini-bert", films, methods=methods)
    assert (result.method, result.samples, result.available) == ("input_x_gradient", 16, 16)
    table = whyformer.evaluate("mini-bert", films, methods, "text_perturbation").to_pandas()
    gaps = table[table["figure"] == result.figure].set_index("method")["value"]
    for one in result.contenders:
        assert one.value == pytest.approx(gaps[one.label], abs=1e-4)
    assert result.best.cost > 1
    assert len(result.worst) == 3
    assert result.gallery.cells[0][0] is not None
    assert result.gallery.rows[0] in sentences(result)[-1], "the page writes a value as its sentences do"
    for name in ("advice.html", "advice.json"):
        assert result.save(tmp_path / name).stat().st_size > 1000
    with pytest.raises(WhyformerError, match=r"save a recommendation as .html or .json"):
        result.save(tmp_path / "advice.pdf")


def test_the_cost_of_an_explanation_is_its_computing_time_whatever_else_the_machine_does():
    """An explanation computes three times what an answer does; waits, as for other programs, are long and at random."""
    values, waits = torch.ones(300, 300), iter(np.random.default_rng(0).permutation([0.03] * 6 + [0.0] * 60))

    def work(times):
        time.sleep(next(waits))
        for _ in range(20 * times):
            values @ values

    with torch.no_grad():
        cost = explanation_cost(partial(work, 1), partial(work, 3), torch.device("cpu"))
    assert cost.answers == pytest.approx(3, rel=0.35)


def test_time_that_is_over_ends_it_after_one_method_on_one_sample():
    result = whyformer.recommend("mini-bert", FILMS * 5, methods=["rollout", "input_x_gradient"], minutes=1e-6)
    assert (result.method, result.samples, len(result.contenders)) == ("rollout", 1, 1)
    assert not result.is_enough
    assert result.notes == ("The time was over before input_x_gradient could be measured.",)


def test_the_time_is_held_to_within_a_sample_and_a_method(monkeypatch):
    """By a clock on which each sample takes each method a second: in 20 of them 5 samples fit four methods."""
    now, sizes = [0.0], []
    monkeypatch.setattr(competition.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(competition, "write_shard", lambda *_: None)
    monkeypatch.setattr(competition, "explanation_costs", lambda *_: {})

    def records(plan, loaded_model, batch_size, number):
        numbers, methods = plan.shards[number], plan.suite.methods
        now[0] += len(numbers) * len(methods)
        sizes.append((len(numbers), len(methods)))
        about = {"protocol": "text_perturbation", "measure": "probability gap"}
        rows = [about | {"method": m.label, "sample": n, "values": [1.0]} for m in methods for n in numbers]
        return {"samples": [{"sample": n, "name": str(n)} for n in numbers], "explanations": [], "rows": rows}

    monkeypatch.setattr(competition, "shard_records", records)
    names = ["rollout", "raw_attention", "grad_cam", "random"]
    suite = Suite("mini-bert", Choice("table"), tuple(map(Choice, names)), (Choice("text_perturbation"),))
    plan = competition.between_looks(RunPlan(suite, "mini-bert", ["a film"] * 40, (tuple(range(40)),)), 0)
    measurement = competition.SampleMeasurement(Worker(plan, None, None), None, end=20.0)
    question = Contest(Choice("text_perturbation"), "negative − positive, probability", "what goes")
    result, _ = competition.compete(measurement, question, Console(quiet=True))
    assert sizes == [(1, 1)] * 4 + [(2, 4), (1, 4), (1, 4)]
    assert (len(result.names), now[0]) == (5, 20.0)


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (FILMS, {"minutes": 0}, "minutes=0: a number above 0"),
        (FILMS, {"methods": ["rolout"]}, "No method named 'rolout'. Did you mean 'rollout'"),
        ([], {}, "has no examples"),
        (
            [("a film", "purple")],
            {"methods": "rollout"},
            "No sample can be used: No label named 'purple'.* Say what the model calls the labels of the data: "
            "labels={'DATA': 'MODEL'}, or --label DATA=MODEL.$",
        ),
    ],
)
def test_what_cannot_be_advised_on_is_refused_in_one_line(data, changes, message):
    with pytest.raises(WhyformerError, match=message):
        whyformer.recommend("mini-bert", data, **changes)


def test_the_protocols_fit_the_model_and_the_truth_that_the_data_has():
    bert, vit = whyformer.load("mini-bert"), whyformer.load("mini-vit")
    assert contest_for(bert, [Sample("a", "a film")]).protocols[0].name == "text_perturbation"
    marked = contest_for(bert, [Sample("a", "a film", words=np.array([True, False]))])
    assert [one.name for one in marked.protocols] == ["text_perturbation", "rationales"]
    image = Image.new("RGB", (4, 4))
    assert [one.name for one in contest_for(vit, [Sample("a", image)]).protocols] == ["image_perturbation"]
    masked = contest_for(vit, [Sample("a", image, mask=np.ones((4, 4)))])
    assert [one.name for one in masked.protocols] == ["image_perturbation", "segmentation"]
    with pytest.raises(WhyformerError, match="Some examples have pictures and some have none"):
        contest_for(vit, [Sample("a", image), Sample("b", "text")])


def test_the_methods_that_compete_are_those_of_this_version():
    assert 5 <= len(contenders()) <= len(CONTENDERS)
