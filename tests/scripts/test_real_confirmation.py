"""The confirmation of the default of responses, and the comparison of focuses, from known lines."""

import gzip
import json

import numpy as np
import pytest
import real_tables
from scipy.stats import binomtest

import focus
from real_confirmation import DEFAULT, confirmation, share
from real_default import runs_of
from real_response_summary import summary, with_costs
from real_responses import lines_of

ABOUT = {"dtype": "float32", "kind": "plain", "hops": 1, "sentences": 9, "causes": [[0]], "subsets": []}


def lines(right: dict[str, int], count: int = 12):
    """Lines of so many questions, of which each method has its first ones right; one more question is not kept."""
    for seed in range(count):
        yield {"seed": seed, "answer": "verbatim", "method": "", "kept": True, **ABOUT}
        for method, first in right.items():
            scores = [1.0, 0.0] if seed < first else [0.0, 1.0]
            yield {"seed": seed, "answer": "verbatim", "method": method, "scores": scores, "seconds": 2.0, "drops": {}}
    yield {"seed": count, "answer": "verbatim", "method": "", "kept": False, **ABOUT}


@pytest.fixture
def found(tmp_path):
    path = tmp_path / "Qwen2.5-Coder.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(one) + "\n" for one in lines({DEFAULT: 11, "evidence": 2}))
    return confirmation(list(lines_of([path])))


def test_a_cell_says_what_was_asked_and_how_often_each_method_was_right(found):
    (cell,) = found
    assert (cell["run"], cell["dtype"], cell["seeds"], cell["tried"], cell["kept"]) == (
        "Qwen2.5-Coder", "float32", [0, 12], 13, 12,
    )  # fmt: skip
    assert cell["target"] == 0.9
    assert list(cell["methods"]) == [DEFAULT, "evidence"]
    ours, theirs = cell["methods"].values()
    assert ours["n"] == 12
    assert ours["top 1"][0] == pytest.approx(11 / 12, abs=1e-4)
    assert "default's gain" not in ours
    gain = theirs["default's gain"]
    assert gain["top 1"][0] == pytest.approx(9 / 12, abs=1e-4)
    assert gain["p"] == pytest.approx(2 / 2**9, abs=2e-3)


def test_the_table_says_which_methods_reached_the_target(found, monkeypatch):
    monkeypatch.setattr(real_tables, "rows_of", lambda name: found)
    text = real_tables.confirmation()
    assert "Qwen2.5-Coder in float32, verbatim answers: 12 of 13 questions kept; seeds 0 to 12, 9 to 9" in text
    assert f"The target is 90%: `{DEFAULT}` reached it. The default has 92%, and the target lies within" in text
    assert f"| `{DEFAULT}` | 12 | 92%" in text
    assert "| `evidence` | 12 | 17%" in text
    found[0]["methods"][DEFAULT]["top 1"] = [0.8, 0.7, 0.89]
    assert "The target is 90%: no method reached it. The default has 80%." in real_tables.confirmation()


def test_methods_that_are_not_candidates_are_left_to_the_table_of_all_methods(tmp_path):
    path = tmp_path / "SmolLM2.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines({DEFAULT: 3, "rollout": 2, "recency": 1})))
    (cell,) = confirmation(list(lines_of([path])))
    assert list(cell["methods"]) == [DEFAULT, "recency"]


def test_the_tables_of_all_methods_have_the_figures_of_the_summary(monkeypatch):
    own = [
        {**one, "run": "SmolLM2-shard0", "overlap": 0.25, "text": ""}
        for one in lines({"evidence": 15, "random": 5}, count=20)
    ]
    costs = [{"method": "evidence", "seconds": 1.5}]
    found = with_costs(summary(own), costs)
    monkeypatch.setattr(real_tables, "result", lambda name: found)
    text = real_tables.responses()
    assert "SmolLM2, verbatim answers: 20 of 21 questions kept; seeds 0 to 20, 9 to 9 sentences, in float32." in text
    assert "| `evidence` | 20 | 75% | " in text
    assert "| 1.50 |" in text
    assert "| random | 20 | 25% | " in text
    assert "| – |" in text  # nothing was left out, and random costs nothing worth measuring
    groups = real_tables.response_groups()
    assert "| `evidence` | 75% of 20 | 75% of 20 | 75% of 20 | 75% of 20 |" in groups
    assert "8 to 20 sentences" in groups
    assert "stated once" in groups


def test_a_share_has_its_wilson_interval():
    ends = share(np.array([1.0] * 13))
    assert (ends.value, ends.high) == (1.0, 1.0)
    assert ends.low == pytest.approx(13 / (13 + 1.96**2))
    scipy_ends = binomtest(38, 41).proportion_ci(method="wilson")
    ends = share(np.array([1.0] * 38 + [0.0] * 3))
    assert (ends.low, ends.high) == pytest.approx((scipy_ends.low, scipy_ends.high), abs=1e-4)


def test_focuses_are_compared_on_the_questions_that_all_explained(tmp_path, monkeypatch):
    path = tmp_path / "mini-llm.jsonl"
    scores = {"none": [0.0, 1.0], "focus=sources": [1.0, 0.0]}
    own = []
    for seed in range(3):
        own.append({"seed": seed, "answer": "verbatim", "method": "", "causes": [[0]]})
        own.append({"seed": seed, "answer": "verbatim", "method": "evidence", "scores": scores})
    own.append({"seed": 0, "answer": "verbatim", "method": "flow_routes", "scores": {**scores, "none": [1.0, 1.0]}})
    path.write_text("".join(json.dumps(one) + "\n" for one in own))
    (cell,) = focus.summary([path])
    assert (cell["run"], cell["questions"], cell["methods"]) == ("mini-llm", 1, ["evidence", "flow_routes"])
    assert cell["candidates"] == {"none": [0.0, 0.5], "focus=sources": [1.0, 1.0]}
    monkeypatch.setattr(real_tables, "rows_of", lambda name: [cell])
    assert "| focus=sources | 100% | 100% | 100% |" in real_tables.focuses()


def test_the_choice_of_a_default_says_what_was_asked(tmp_path):
    for half in (0, 1):
        path = tmp_path / f"SmolLM2-shard{half}.jsonl"
        own = [one for one in lines({DEFAULT: 12}) if one["seed"] % 2 == half]
        path.write_text("".join(json.dumps(one) + "\n" for one in own))
    (found,) = runs_of(sorted(tmp_path.iterdir()))
    assert found == {
        "run": "SmolLM2", "answers": "verbatim", "dtype": "float32", "seeds": [0, 12], "sentences": [9, 9],
        "tried": 13, "kept": 12,
    }  # fmt: skip
