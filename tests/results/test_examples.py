"""The examples in the docstrings of the results do what they say."""

import doctest
import importlib

import pytest

MODULES = ["results.explanation", "results.continuation", "results.part", "inputs.layouts"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(f"whyformer.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
