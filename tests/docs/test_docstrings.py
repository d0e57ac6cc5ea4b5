"""Every public function and class says what it does, what it takes and gives, and shows it in an example that runs."""

import doctest
import inspect
import re

import numpy as np
import PIL.Image
import pytest
import torch

import whyformer
import whyformer.scenes
from registries import registries_kept

# Registries and type aliases are data; errors are described by when they are raised.
PUBLIC = {
    name: value
    for module in (whyformer, whyformer.extend)
    for name in module.__all__
    if inspect.isfunction(value := getattr(module, name)) or inspect.isclass(value)
}


def members(name: str, value: object):
    """A public name and, of a class, its own public methods."""
    yield name, value
    if inspect.isclass(value) and not issubclass(value, Exception):
        for member, function in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(function) or isinstance(function, classmethod)):
                yield f"{name}.{member}", getattr(value, member)


EVERYTHING = dict(pair for name, value in PUBLIC.items() for pair in members(name, value))


def test_a_public_name_is_described_by_a_sentence():
    texts = {name: inspect.getdoc(value) or "" for name, value in EVERYTHING.items()}
    assert not [name for name, text in texts.items() if not re.match(r".+[.:]", text.partition("\n")[0])]


def test_a_public_function_says_what_it_takes_gives_and_raises():
    lacking = []
    for name, function in PUBLIC.items():
        if not inspect.isfunction(function):
            continue
        text, parameters = inspect.getdoc(function) or "", inspect.signature(function).parameters
        sections = ["Args:"] * bool(parameters) + ["Returns:", "Example:"]
        lacking += [f"{name}: {section}" for section in sections if section not in text]
        lacking += [f"{name}: {p}" for p in parameters if not re.search(rf"^ +\**{p}:", text, flags=re.MULTILINE)]
    assert not lacking, "\n".join(lacking)


@pytest.fixture
def registries():
    """Examples register methods, protocols and readers of their own: gone when the example ends."""
    with registries_kept():
        yield


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    "name", [n for n, v in PUBLIC.items() if not (inspect.isclass(v) and issubclass(v, Exception))]
)
def test_the_examples_of_a_public_name_run(name):
    value = PUBLIC[name]
    tests = doctest.DocTestFinder(recurse=True).find(value, name, globs=dict(GLOBALS))
    assert any(test.examples for test in tests), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


GLOBALS = {"whyformer": whyformer, "torch": torch, "np": np, "PIL": PIL}
