"""Whether an advice names what a whole evaluation finds best: the lookup in the published table."""

import importlib
import json

import pytest

from whyformer.benchmark.choice import Choice

advice = importlib.import_module("advice")

ROWS = [
    {"method": "full_grad backward=libra", "n": 9, "value": 0.8},
    {"method": "input_x_gradient", "n": 9, "value": 0.79, "p": 0.4},
    {"method": "state_x_gradient blocks=sum backward=attn_lrp", "n": 9, "value": 0.6, "p": 0.001},
]
TABLE = {"protocols": [{"protocol": "text_perturbation", "figures": [{"figure": "gap", "rows": ROWS}]}]}


@pytest.mark.parametrize(
    ("label", "value", "is_best_or_tied"),
    [
        ("full_grad backward=libra", 0.8, True),
        ("input_x_gradient", 0.79, True),
        ("state_x_gradient backward=attn_lrp", 0.6, False),
        ("rollout", None, False),
    ],
)
def test_what_is_best_or_not_told_from_it_is_found_under_either_name(label, value, is_best_or_tied):
    found = advice.standing(TABLE, "text_perturbation", "gap", label)
    assert (found["value"], found["is_best_or_tied"]) == (value, is_best_or_tied)
    assert found["best_or_tied"] == ["full_grad backward=libra", "input_x_gradient"]
    assert found["samples"] == 9


def test_the_measurement_is_written_with_its_seconds_and_its_standing(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    texts = ["a wonderful film, full of warmth", "a dull and endless film", "a waste of time"]
    lines = []
    for number, (text, label) in enumerate(zip(texts, ("POS", "NEG", "NEG"), strict=True)):
        (tmp_path / "docs" / f"{number}").write_text(text)
        lines.append(json.dumps({"annotation_id": f"{number}", "classification": label, "evidences": []}))
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    recommend = importlib.import_module("whyformer.benchmark.advice.recommend")
    monkeypatch.setattr(recommend, "contenders", lambda: [Choice("input_x_gradient")])
    figures = [{"figure": "negative − positive, probability", "rows": ROWS}]
    report = advice.measure(tmp_path, 2, 1.0, {"protocols": [{"protocol": "text_perturbation", "figures": figures}]})
    assert (report["method"], report["reviews"], report["measured"]) == ("input_x_gradient", 2, 2)
    assert report["seconds"] < 60
    assert report["whole_table"]["is_best_or_tied"]
    json.dumps(report)
