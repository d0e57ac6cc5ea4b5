"""Messages: near names for slips, all names for anything else, and never an empty reason."""

import sys
import warnings
from types import SimpleNamespace

import pytest
from rich import console as rich_console

from whyformer.errors import nearest, reason_of
from whyformer.methods.registry import METHODS
from whyformer.progress import track

SLIPS = {
    "rolout": "rollout",
    "Rollout": "rollout",
    "roll-out": "rollout",
    "raw_atention": "raw_attention",
    "attention": "raw_attention",
    "gradcam": "grad_cam",
    "cam": "grad_cam",
    "bi-token": "bi_token",
    "bitoken": "bi_token",
    "bi_tokens": "bi_token",
    "bi_heads": "bi_head",
    "generic": "generic_attention",
    "generic_atention": "generic_attention",
    "integrated": "integrated_gradients",
    "integrated_gradient": "integrated_gradients",
    "input_times_gradient": "input_x_gradient",
    "lpr": "lrp",
    "lrp_partial": "partial_lrp",
    "partial": "partial_lrp",
    "transformer": "transformer_attribution",
    "transformer_atribution": "transformer_attribution",
    "randon": "random",
}


@pytest.mark.parametrize("word", SLIPS)
def test_a_slip_is_met_with_the_name_that_was_meant(word):
    sentence = nearest(word, sorted(METHODS))
    assert sentence.startswith("Did you mean ")
    assert repr(SLIPS[word]) in sentence


@pytest.mark.parametrize("word", ["nope", "shapes", "ig", "x", "", "saliency", "dog", "a film"])
def test_a_word_that_is_near_to_nothing_is_met_with_all_names(word):
    assert nearest(word, sorted(METHODS)) == f"Known: {', '.join(sorted(METHODS))}."


def test_the_nearest_comes_first():
    assert nearest("mini-vitt", ["mini-bert", "mini-vit-mae", "mini-vit"]).startswith("Did you mean 'mini-vit' or")
    assert nearest("CAT", ["dog", "Cat"]) == "Did you mean 'Cat'?"


def test_a_reason_is_never_empty():
    assert reason_of(StopIteration()) == "StopIteration, without a message"
    assert reason_of(ValueError("  Two\n lines ")) == "Two lines"


class ZMQInteractiveShell:
    """What a notebook's kernel calls its shell."""


def test_progress_in_a_notebook_without_widgets_is_a_bar_and_no_warning(monkeypatch, capsys):
    kernel = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(track([1, 2, 3], "Explaining", progress=True)) == [1, 2, 3]
    printed = capsys.readouterr()
    assert "Explaining" in printed.err
    assert "\r" in printed.err
    assert printed.out == ""


def test_progress_that_is_not_wanted_prints_nothing(capsys):
    assert list(track([1, 2], "Explaining", progress=False)) == [1, 2]
    assert capsys.readouterr() == ("", "")
