"""The table of architectures is what the list of them gives today."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import architecture_tables
import pytest
import torch

import architectures
from tiny_table import ARCHITECTURES
from whyformer.methods.registry import trace_methods

FILE = Path(__file__).parents[2] / "benchmarks" / "results" / "architectures.json"
# A few of each kind: what works, what took the default's place, what is refused.
CELLS = [
    ("bert", "bi_token"),
    ("MPT", "lrp"),
    ("CTRL", "input_x_gradient"),
    ("Gemma 2", "generic_attention"),
    ("I-BERT", "integrated_gradients"),
    ("XLNet", "rollout"),
    ("Perceiver", "generic_attention"),
    ("OLMo", "bi_token"),
    ("Persimmon", "lrp"),
    ("mBART", "rollout"),
    ("NLLB-MoE", "raw_attention"),
    ("Table Transformer", "grad_cam"),
    ("Chinese-CLIP", "rollout"),
    ("CvT", "input_x_gradient"),
    ("ConvNeXt", "no method named"),
    ("ConvNeXt", "rollout"),
    ("Funnel", "raw_attention"),
    ("Jamba", "raw_attention"),
    ("LLaVA", "rollout"),
]


@cache
def committed() -> dict[str, dict[str, Any]]:
    return {row["architecture"]: row for row in architecture_tables.rows(FILE)}


def test_the_table_has_every_model_of_the_list_and_every_method():
    assert list(committed()) == list(ARCHITECTURES)
    for row in committed().values():
        assert list(row["methods"]) == list(architectures.COLUMNS)
        assert trace_methods().keys() <= row["methods"].keys()
    assert len({row["type"] for row in committed().values()}) >= 75


def test_no_cell_breaks_the_contract_and_every_refusal_is_one_line():
    for row in committed().values():
        for cell in row["methods"].values():
            assert "fails" not in cell
            assert cell.get("differs_by", 0) <= architectures.TOLERANCE
            assert "\n" not in cell.get("refused", "")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "column"), CELLS)
def test_a_cell_made_anew_is_that_of_the_table(name, column):
    assert torch.get_default_dtype() == torch.float32
    (cell,) = architectures.row_of(name, [column])["methods"].values()
    expected = committed()[name]["methods"][column]
    assert cell.keys() == expected.keys()
    assert cell.get("differs_by", 0) <= architectures.TOLERANCE
    for key in cell.keys() - {"differs_by"}:
        assert cell[key] == expected[key]


def test_the_summary_counts_models_by_what_works_and_groups_reasons(tmp_path):
    works, refused = {"differs_by": 0.0, "streams": ["text"]}, {"refused": "TinyModel has 2 layers, and no map."}
    row = {"type": "tiny", "kind": "decoder", "reads_padding": ""}
    rows = [
        {**row, "architecture": "A", "class": "TinyModel", "methods": {"no method named": works, "rollout": works}},
        {**row, "architecture": "B", "class": "TinyModel", "methods": {"no method named": works, "rollout": refused}},
    ]
    file = tmp_path / "table.json"
    file.write_text(json.dumps({"versions": {"transformers": "5"}, "architectures": rows}))
    text = architecture_tables.summary(file)
    assert "2 tiny models of 1 architectures of transformers 5, 2 methods: all work on 1 models, some on 1" in text
    assert "| decoder | 1 | A |" in text
    assert "| B | decoder | 1 of 2 | the default | all that read maps (1) |" in text
    assert "1. The model has 2 layers, and no map." in text
