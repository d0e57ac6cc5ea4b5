"""Responses on real models: which questions are kept, lines that are continued, and what they come to."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from real_questions import Question, asked, says
from real_response_summary import summary, with_costs
from real_responses import Case, explained, lines_of, main, sink_of
from real_writer import Drops, writer_of
from whyformer import explain_response, load
from whyformer.facts import prose

QUESTION = Question(4, prose(4, sentences=9, hops=1, kind="plain", domain="company"))


@pytest.fixture(scope="module")
def writer():
    return writer_of(load("mini-llm", device="cpu"), batch=3)


def test_log_probabilities_of_a_padded_batch_are_those_of_each_prompt_alone(writer):
    prompts = ["Anna is in Oslo.\n\nWhere is Anna?", "Ben has the lamp. Anna is in Oslo.\n\nWhere is Anna?", "Who?"]
    answer = "Anna is in Oslo."
    together = writer.log_probabilities([(prompt, answer) for prompt in prompts])
    own = writer.loaded_model.tokenizer(answer, add_special_tokens=False)["input_ids"]
    for prompt, found in zip(prompts, together, strict=True):
        ids = torch.tensor([writer.ids(prompt) + own])
        with torch.no_grad():
            logs = writer.loaded_model.model(ids).logits[0, -len(own) - 1 : -1].log_softmax(dim=-1)
        assert found == pytest.approx(float(logs.gather(1, torch.tensor(own)[:, None]).sum()), abs=1e-3)


def test_a_drop_is_the_difference_of_log_probabilities(writer):
    answer = QUESTION.passage.question.answer
    drops = Drops(writer)
    requests = [(QUESTION.passage.prompt, answer), (QUESTION.passage.without([1, 4]), answer)]
    whole, shorter = writer.log_probabilities(requests)
    lost = drops.of([(QUESTION, answer, [4, 1]), (QUESTION, answer, [1, 4]), (QUESTION, answer, [])])
    assert lost == pytest.approx([whole - shorter, whole - shorter, 0], abs=1e-4)


def test_scores_are_those_of_the_sentences_in_their_order(writer):
    case = Case(QUESTION, "verbatim", QUESTION.passage.question.answer)
    (scores,) = explained(writer, [case], "input_x_gradient backward=libra")
    assert len(scores) == 9
    (value,) = explained(writer, [case], "input_x_gradient backward=libra ask=value")
    assert value != scores


@pytest.mark.parametrize("method", ["evidence focus=sources", "generic_attention", "flow_routes"])
def test_questions_that_are_explained_together_have_the_scores_of_each_alone(writer, method):
    passages = (prose(seed, sentences=count, kind="plain") for seed, count in ((3, 8), (5, 11)))
    cases = [Case(Question(0, one), "verbatim", one.question.answer) for one in passages]
    together, alone = explained(writer, cases, method), [explained(writer, [case], method)[0] for case in cases]
    for one, other, case in zip(together, alone, cases, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
        prompt = writer.messages(case.question.passage.prompt)
        whole = explain_response(prompt, case.text, writer.loaded_model, method.split()[0], units="response",
            sources=case.places, focus="sources" if "focus" in method else "none")  # fmt: skip
        assert one == pytest.approx(whole.scores[0].tolist(), abs=1e-4)


def test_an_answer_is_right_where_it_has_the_value_in_either_wording():
    about = prose(7, sentences=8, hops=1, kind="plain", domain="mountain hut")
    asked_about = Question(7, about)
    value = about.question.value
    assert says(f"It is {value}, I think.", asked_about)
    assert says(about.question.reworded, asked_about)
    assert not says(f"It is 9{value}9.", asked_about)


def test_verbatim_answers_are_kept_by_their_loss_and_others_by_being_right_only_with_the_text():
    value, passage = QUESTION.passage.question.value, QUESTION.passage
    writer = SimpleNamespace(
        log_probabilities=lambda requests: [-1.0, -1.9],
        write=lambda prompts: [value if prompt == passage.prompt else "I do not know" for prompt in prompts],
    )
    kept = {answer.kind: answer.is_kept for _, answer in asked([QUESTION], writer, ("verbatim", "reworded", "own"))}
    assert kept == {"verbatim": False, "reworded": True, "own": True}
    writer.log_probabilities = lambda requests: [-1.0, -2.0]
    writer.write = lambda prompts: [value] * len(prompts)
    kept = {answer.kind: answer.is_kept for _, answer in asked([QUESTION], writer, ("verbatim", "reworded", "own"))}
    assert kept == {"verbatim": True, "reworded": False, "own": False}


def line(seed, method, **more):
    return {"run": "a-shard0", "seed": seed, "answer": "verbatim", "method": method, **more}


def test_the_summary_of_known_lines_is_the_known_figures():
    about = {"domain": "ship", "attribute": "crew", "kind": "plain", "hops": 1, "sentences": 9, "text": "", "loss": 2}
    values = [{"without": [0], "value": -3.0}, {"without": [1], "value": -1.0}, {"without": [2], "value": -2.0}]
    drops = {"1": 2.0, "3": 3.0, "5": 4.0}
    lines = [
        line(0, "", **about, causes=[[0]], kept=True, subsets=values),
        line(1, "", **about, causes=[[1, 2]], kept=True, subsets=values),
        line(2, "", **about, causes=[[0]], kept=False, subsets=[]),
        line(0, "good", scores=[3.0, 1.0, 2.0], drops=drops),
        line(1, "good", scores=[3.0, 1.0, 2.0], drops=drops),
        line(0, "broken", error="it does not apply"),
    ]
    costs = [line(9, "good", seconds=seconds) for seconds in (1.0, 3.0, 4.0)]
    found = with_costs(summary(lines), costs)["a"]["verbatim"]
    assert (found["tried"], found["kept"]) == (3, 2)
    good = found["methods"]["good"]
    assert good["questions"] == 2
    assert good["top 1"] == 0.5
    assert good["cause found"] == 0.75
    assert good["AUPRC"] == pytest.approx((1 + (1 / 2 * 1 / 2 + 1 / 2 * 2 / 3)) / 2, abs=1e-4)
    assert good["LDS"] == 1.0
    assert good["top 3 drop"] == 3.0
    assert good["seconds"] == 3.0
    assert good["top 1 by"]["length"] == {"8 to 20": [0.5, 2]}
    assert found["methods"]["broken"] == {"questions": 0, "errors": 1, "first error": "it does not apply"}


def test_a_run_is_continued_after_its_last_whole_line(tmp_path):
    path = tmp_path / "run.jsonl"
    own = [{"seed": 0, "answer": "own", "method": "", "kept": False, "text": "No."}]
    own.append({"seed": 1, "answer": "own", "method": "", "kept": True, "text": "Nine."})
    whole = "".join(json.dumps(one) + "\n" for one in own)
    path.write_text(f'{whole}{{"seed": 1, "answ')
    sink = sink_of(path)
    assert path.read_text() == whole
    assert sink.known == {(0, "own", ""), (1, "own", "")}
    assert sink.answers == {(1, "own"): "Nine."}


def test_the_script_measures_a_bundled_model_and_does_nothing_twice(tmp_path, monkeypatch):
    out = tmp_path / "mini.jsonl"
    command = ["real_responses.py", "measure", "mini-llm", "--out", str(out), "--device", "cpu"]
    command += ["--questions", "2", "--first", "1", "--sentences", "8", "9", "--answers", "verbatim", "--subsets", "2"]
    command += ["--methods", "rollout", "--together", "2"]
    monkeypatch.setattr(sys, "argv", command)
    main()
    content = out.read_text()
    main()
    assert out.read_text() == content
    assert {one["answer"] for one in lines_of([out])} == {"verbatim"}
