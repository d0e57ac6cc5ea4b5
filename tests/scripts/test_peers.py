"""Other libraries beside this one: every method has its figures or a reason, and all are asked the same."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

import peers
from whyformer.metrics.source_measures import source_average_precision
from whyformer.models.loading import load

ROOT = Path(__file__).parents[2]
REPORT = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())
COSTS = {"seconds", "forwards", "texts"}
FIGURES = {"mini-llm": COSTS | {"recall@3", "AUPRC", "drop@3", "LDS"}, "mini-gpt": COSTS}
METHODS = [(library, method) for library, methods in peers.METHODS.items() for method in methods]


@pytest.fixture(scope="module")
def questions():
    return {model: peers.QUESTIONS[model](load(model, device="cpu"), 2) for model in peers.BUNDLED}


@pytest.mark.parametrize("model", FIGURES)
@pytest.mark.parametrize(("library", "method"), METHODS)
def test_a_method_has_all_figures_or_one_line_that_says_why_not(library, method, model):
    row = REPORT["libraries"][library]["methods"][method][model]
    if "reason" in row:
        assert set(row) == {"reason"}
        assert row["reason"]
        assert "\n" not in row["reason"]
    else:
        assert set(row) == FIGURES[model]
        assert all(math.isfinite(value) for value in row.values())
        assert row["seconds"] > 0
        assert row["forwards"] >= 1


def test_the_results_have_no_other_methods():
    assert [*METHODS] == [
        (library, method) for library, entry in REPORT["libraries"].items() for method in entry["methods"]
    ]


def test_the_libraries_that_ran_are_those_that_are_pinned():
    lines = (ROOT / "benchmarks" / "peers-requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    for library, entry in REPORT["libraries"].items():
        versions = {name: version.partition("+")[0] for name, version in entry["versions"].items()}
        expected = {name: pins[name] for name in versions if name != "whyformer"}
        assert {name: versions[name] for name in expected} == expected, library


@pytest.mark.parametrize("model", FIGURES)
def test_every_library_reads_the_same_tokens(model, questions):
    tokenizer = load(model, device="cpu").tokenizer
    for question in questions[model]:
        assert question.with_sources([source.text for source in question.sources]) == question.text
        assert tuple(tokenizer(question.text)["input_ids"]) == tuple(question.prompt.ids)
        ids = tokenizer(question.whole_text, add_special_tokens=False)["input_ids"]
        assert tuple(ids) == tuple(question.prompt.ids)


def test_on_a_real_model_only_the_truth_counts_and_each_library_is_there(questions):
    (question, _), key = questions["mini-llm"], ("whyformer", "evidence")
    question = dataclasses.replace(question, of_truth_alone=True, causes=((0,), (2,)))
    scores = np.zeros(len(question.sources))
    scores[[1, 2]] = 1.0
    precision = source_average_precision(scores, np.isin(np.arange(len(scores)), (0, 2)))
    assert question.figures({key: scores})[key] == {"true first": 0.5, "AUPRC": precision}
    assert {*peers.REAL_METHODS} == {*peers.METHODS, "lxt"} == {*peers.LIBRARIES}
    assert all(1 <= len(methods) <= 5 for methods in peers.REAL_METHODS.values())


def test_scores_of_tokens_are_pooled_as_ours_are(questions):
    for question in questions["mini-llm"]:
        ours = peers.whyformer.explain_response(
            question.example, question.reply.text, question.loaded_model, "input_x_gradient", units="response",
            sources=[(source.start, source.end) for source in question.sources],
        )  # fmt: skip
        assert question.pooled(ours.token_scores[0]).tolist() == ours.scores[0].tolist()


def test_scores_that_do_not_fit_the_prompt_are_refused(questions):
    question = questions["mini-gpt"][0]
    count = len(question.prompt.ids)
    with pytest.raises(ValueError, match=f"{count - 1} scores for {count} tokens of the prompt"):
        question.pooled([0.0] * (count - 1))


def test_the_true_sentences_have_full_marks(questions):
    question = questions["mini-llm"][0]
    causes = sorted({place for cause in question.causes for place in cause})
    truth = peers.np.isin(range(len(question.sources)), causes).astype(float)
    (figures,) = question.figures({("nobody", "the truth"): truth}).values()
    assert figures["recall@3"] == 1.0
    assert figures["AUPRC"] == 1.0
    assert figures["drop@3"] > 1.0


def test_a_library_that_fails_has_its_reason_in_one_line():
    def fail(model):
        raise ImportError("No module named 'inseq'\nmore of it")

    saved = []
    rows = peers.measure({("inseq", "saliency"): fail}, "mini-gpt", 1, saved.append)
    assert saved == [rows]
    assert rows == {("inseq", "saliency"): {"reason": "ImportError: No module named 'inseq'"}}


def test_a_run_of_one_library_leaves_the_others_as_they_were():
    old = {"questions": 2, "libraries": {"inseq": {"methods": 1}, "captum": {"methods": 1}}}
    assert peers.merged(old, {"questions": 2}, {"captum": {"methods": 2}}) == {
        "questions": 2,
        "libraries": {"inseq": {"methods": 1}, "captum": {"methods": 2}},
    }


def test_results_of_other_questions_are_not_mixed():
    with pytest.raises(SystemExit, match="questions: 1 in the file, 2 now"):
        peers.merged({"questions": 1, "libraries": {}}, {"questions": 2}, {})


def figures_of(library: str, method: str, model: str = "mini-llm") -> dict[str, float]:
    return REPORT["libraries"][library]["methods"][method][model]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("leave_one_out", "FeatureAblation, forward_in_tokens=False"),
        ("leave_one_out", "FeatureAblation, use_cached_outputs=False"),
        ("input_x_gradient", "LayerGradientXActivation"),
    ],
)
def test_what_computes_the_same_agrees_and_ours_takes_less_time(ours, theirs):
    for model in FIGURES:
        own, other = figures_of("whyformer", ours, model), figures_of("captum", theirs, model)
        for figure in FIGURES[model] - COSTS:
            assert own[figure] == pytest.approx(other[figure], abs=0.005)
        assert own["seconds"] < other["seconds"]


def test_context_ablation_is_as_good_as_context_cite_in_less_time():
    own, other = figures_of("whyformer", "context_ablation"), figures_of("context-cite", "ContextCiter")
    for figure in ("recall@3", "AUPRC", "LDS"):
        assert own[figure] == pytest.approx(other[figure], abs=0.03)
    for model in FIGURES:
        own, other = (
            figures_of(*row, model) for row in (("whyformer", "context_ablation"), ("context-cite", "ContextCiter"))
        )
        assert own["seconds"] < other["seconds"]


def test_a_row_per_token_takes_less_than_half_of_the_others_time():
    others = [("inseq", "saliency"), ("inseq", "input_x_gradient"), ("captum", "LayerGradientXActivation")]
    for method in ("generic_attention", "input_x_gradient"):
        own = figures_of("whyformer", f"{method}, a row per token", "mini-gpt")["seconds"]
        assert all(own < figures_of(*other, "mini-gpt")["seconds"] / 2 for other in others)


def test_the_page_says_where_others_are_ahead():
    routes, trace = figures_of("whyformer", "flow_routes"), figures_of("flashtrace", "flashtrace")
    assert trace["seconds"] < routes["seconds"]
    assert trace["recall@3"] < routes["recall@3"]
    assert trace["AUPRC"] < routes["AUPRC"]
    assert figures_of("inseq", "input_x_gradient")["AUPRC"] > figures_of("whyformer", "input_x_gradient")["AUPRC"]
    rows = {key: figures_of(*key) for key in METHODS if "reason" not in figures_of(*key)}
    quickest = rows["inseq", "attention"]
    assert quickest["seconds"] == min(row["seconds"] for row in rows.values())
    asks_again = {"context_ablation", "leave_one_out", "ContextCiter"}
    at_once = {key: row for key, row in rows.items() if key[1] not in asks_again and "FeatureAblation" not in key[1]}
    assert quickest["AUPRC"] == max(row["AUPRC"] for row in at_once.values())
    assert max(at_once, key=lambda key: at_once[key]["LDS"]) == ("whyformer", "generic_attention")
    composed, chance = figures_of("whyformer", "bi_token, libra"), figures_of("whyformer", "random")
    assert composed["AUPRC"] <= chance["AUPRC"]
    assert composed["recall@3"] <= chance["recall@3"]


def test_captum_goes_wrong_with_its_cache_alone():
    for model in FIGURES:
        assert "without its cache" in figures_of("captum", "FeatureAblation", model)["reason"]
