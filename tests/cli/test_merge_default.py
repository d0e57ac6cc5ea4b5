"""The default's column of a comparison, where another column shows the same."""

from dataclasses import replace

import numpy as np

from whyformer.cli.compare_command import merge_default
from whyformer.inputs.layouts import WordPieces
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

TEXT = Part(WordPieces(("a",), ("a",), (0,), ((0, 1),)), np.ones(1))
EVIDENCE = Explanation({"text": TEXT}, "cat", 0.9, "evidence", "m")
ROLLOUT = replace(EVIDENCE, method="rollout")


def test_the_default_has_no_column_beside_the_same_method():
    rows, headings = merge_default([[EVIDENCE, ROLLOUT, EVIDENCE]], ["default", "rollout", "evidence"])
    assert headings == ["evidence (default)", "rollout"]
    assert rows == [[EVIDENCE, ROLLOUT]]


def test_it_keeps_its_column_where_one_row_differs():
    other = replace(EVIDENCE, options={"backward": "libra"})
    table = [[EVIDENCE, EVIDENCE], [other, EVIDENCE]]
    assert merge_default(table, ["default", "evidence"]) == (table, ["default", "evidence"])
    assert merge_default([[ROLLOUT]], ["rollout"]) == ([[ROLLOUT]], ["rollout"])


def test_cells_that_do_not_apply_stay_empty():
    rows, headings = merge_default([[EVIDENCE, None, EVIDENCE]], ["default", "rollout", "evidence"])
    assert (rows, headings) == ([[EVIDENCE, None]], ["evidence (default)", "rollout"])
