"""The protocol of sources, on a bundled model and documents of facts: figures that can be told from one another."""

from __future__ import annotations

import numpy as np
import pytest

from whyformer import evaluate
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import reply_of
from whyformer.api.source_methods import response_ablation
from whyformer.benchmark.protocols import PROTOCOLS
from whyformer.benchmark.tables import read_records
from whyformer.data import facts, passages
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.metrics.source_measures import lexical_overlap, recency, source_average_precision, source_recall

STORIES = facts(5, most=7)
CONTROLS = {"random", "recency", "lexical_overlap"}


@pytest.fixture(scope="module")
def values(gpt, tmp_path_factory):
    """What was measured, by method and measure, a value for each sample."""
    out = tmp_path_factory.mktemp("sources") / "out"
    protocol = {"name": "sources", "subsets": 16, "held_out": 8}
    evaluate(gpt, STORIES, ["raw_attention", "flow_routes"], protocol, out=out)
    rows: dict[tuple[str, str], list[float]] = {}
    for record in sorted(read_records(out, "rows"), key=lambda record: record["sample"]):
        if record["protocol"].startswith("sources"):
            rows.setdefault((record["method"], record["measure"]), []).append(record["values"][0])
    return {key: np.array(row, dtype=float) for key, row in rows.items()}


def truths(number: int) -> list[np.ndarray]:
    story = STORIES[number]
    causes = story.questions[0].causes
    sets = [*causes, tuple({place for cause in causes for place in cause})]
    return [np.isin(np.arange(len(story.sentences)), cause) for cause in sets if cause]


def test_the_methods_the_references_and_the_controls_are_all_there(values):
    methods = {method for method, _ in values}
    assert (
        methods
        == {"raw_attention", "flow_routes", "context_ablation", "leave_one_out", "attntrace", "depass"} | CONTROLS
    )
    assert {measure for _, measure in values} == {figure.measure for figure in PROTOCOLS["sources"].figures.values()}


def test_figures_against_the_truth_are_those_of_the_measures(values):
    for number, story in enumerate(STORIES):
        texts = [sentence.text for sentence in story.sentences]
        scores = {
            "recency": recency(len(texts)),
            "lexical_overlap": lexical_overlap(texts, f"{story.question} {story.answer}"),
        }
        for method, one in scores.items():
            areas = [source_average_precision(one, truth) for truth in truths(number)]
            assert values[method, "AUPRC"][number] == pytest.approx(max(areas, default=np.nan), nan_ok=True)
            shares = [source_recall(one, truth, 3) for truth in truths(number)]
            assert values[method, "recall@3"][number] == pytest.approx(max(shares, default=np.nan), nan_ok=True)


def test_figures_by_hops_and_by_place_are_parts_of_the_whole(values):
    for method in {method for method, _ in values}:
        whole = values[method, "AUPRC"]
        for parts in ([f"hops {n}" for n in (1, 2, 3)], [f"{third} third" for third in ("first", "middle", "last")]):
            several = np.stack([values[method, f"AUPRC, {part}"] for part in parts])
            known = np.isfinite(several)
            assert (known.sum(axis=0) == np.isfinite(whole)).all()
            np.testing.assert_allclose(np.where(known, several, 0).sum(axis=0), np.nan_to_num(whole))


def test_nothing_drops_further_than_what_leave_one_out_ranks_first(values):
    best = values["leave_one_out", "drop@1"]
    for method in {method for method, _ in values}:
        assert (values[method, "drop@1"] <= best + 1e-4).all()


def test_drops_are_differences_of_log_probabilities(values, gpt):
    for number, story in enumerate(STORIES):
        encoded = encode_prompt(gpt, story.prompt)
        reply = reply_of(gpt, encoded, f" {story.answer}")
        parts = sources_of(encoded.prompt, [(sentence.start, sentence.end) for sentence in story.sentences])
        whole = [ResponseRow(reply.exchange, span.tokens) for span in spans_of(reply.text, reply.tokens, "response")]
        asked = response_ablation(LoadedScorer(gpt), reply, whole, parts)
        masks = np.ones((2, len(parts)), dtype=bool)
        masks[1, -3:] = False
        before, after = asked.scores_of(masks)[:, 0]
        assert values["recency", "drop@3"][number] == pytest.approx(before - after, abs=1e-4)


def test_what_a_method_costs_is_counted(values):
    sentences = np.mean([len(story.sentences) for story in STORIES])
    assert values["recency", "forwards"].tolist() == [0.0] * 5
    assert values["flow_routes", "forwards"].tolist() == [1.0] * 5
    assert sentences + 1 <= values["leave_one_out", "forwards"][0] <= sentences + 2
    assert 2 < values["context_ablation", "forwards"][0] <= 17
    assert (np.abs(np.concatenate([row for (_, measure), row in values.items() if measure == "LDS"])) <= 1).all()


def test_passages_have_an_answer_in_either_wording():
    said, reworded = passages(4, seed=3, most=9), passages(4, seed=3, most=9, wording="reworded")
    for one, other in zip(said, reworded, strict=True):
        assert one.passage == other.passage
        assert one.passage.question.causes
        assert (one.answer, other.answer) == (one.passage.question.answer, one.passage.question.reworded)
    assert said.names == tuple(one.name for one in said)


def test_a_sample_counts_where_the_response_loses_enough_without_its_sources(gpt, tmp_path):
    texts = passages(3, seed=5, most=8)
    losses = []
    for one in texts:
        encoded = encode_prompt(gpt, one.passage.prompt)
        reply = reply_of(gpt, encoded, f" {one.answer}")
        parts = sources_of(encoded.prompt, [(sentence.start, sentence.end) for sentence in one.passage.sentences])
        rows = [ResponseRow(reply.exchange, span.tokens) for span in spans_of(reply.text, reply.tokens, "response")]
        masks = np.ones((2, len(parts)), dtype=bool)
        masks[1, sorted({place for cause in one.passage.question.causes for place in cause})] = False
        whole, without = response_ablation(LoadedScorer(gpt), reply, rows, parts).scores_of(masks)[:, 0]
        losses.append(whole - without)
    least = float(np.median(losses))
    for focus in ("none", "sources"):
        protocol = {"name": "sources", "subsets": 8, "held_out": 4, "focus": focus, "least_loss": least}
        evaluate(gpt, texts, ["raw_attention"], protocol, out=tmp_path / focus)
    kept = {}
    for focus in ("none", "sources"):
        for record in read_records(tmp_path / focus, "rows"):
            if (record["method"], record["measure"]) == ("raw_attention", "AUPRC"):
                kept[focus, record["sample"]] = record["values"][0]
    for number, loss in enumerate(losses):
        for focus in ("none", "sources"):
            assert np.isfinite(float(kept[focus, number])) == (loss >= least)
    assert [kept["none", n] for n in range(3)] != [kept["sources", n] for n in range(3)]


def test_documents_are_drawn_by_the_seed():
    assert [story.document for story in facts(3)] == [story.document for story in facts(3)]
    assert facts(2, seed=1)[0] == facts(2)[1]
    assert all(4 <= len(story.sentences) <= 6 for story in facts(9, fewest=4, most=6))
    assert {story.questions[0].hops for story in facts(5, hops=2, fewest=5)} == {2}


def test_data_without_known_sources_is_refused(gpt):
    with pytest.raises(WhyformerError, match=r"sources needs questions about documents with known sources, which"):
        evaluate(gpt, ["A wonderful film."], "raw_attention", "sources")
