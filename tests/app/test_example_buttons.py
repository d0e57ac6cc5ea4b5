"""Every example button of the page, pressed without a browser: its code gives the same in an empty folder."""

import asyncio
import contextlib
import json
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest

from commands import run_script
from whyformer import Survey
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice
from whyformer.app.setup import Setup
from whyformer.app.wiring import build_page


async def page():
    return build_page(Setup(model_choice(), Limits(picture_tokens=4)))  # each token is explained by itself, three times


PAGE = asyncio.run(page())  # outside of a loop Gradio makes loops of its own, and leaves them open
EVENTS = list(PAGE.fns.values())


def ancestors(block):
    while block.parent is not None:
        block = block.parent
        yield block


def example_buttons():
    """Each with the name of its tab."""
    for block in PAGE.blocks.values():
        if isinstance(block, gr.Button) and "examples" in (block.parent.elem_classes or ()):
            (tab,) = [one.label for one in ancestors(block) if isinstance(one, gr.Tab)]
            yield pytest.param(block, id=f"{tab}: {block.value}")


def pressed(button):
    """All that the page shows after the button was pressed, by the labels of its components."""
    (fill,) = [event for event in EVENTS if (button._id, "click") in event.targets]
    (answer,) = [event for event in EVENTS if event.trigger_after == fill._id]
    assert fill.outputs == answer.inputs
    shown = {}
    for update in answer.fn(SimpleNamespace(session_hash=str(button._id)), *fill.fn()):
        shown |= {component.label: value for component, value in update.items() if hasattr(component, "label")}
        shown |= {component.value: value for component, value in update.items() if isinstance(component, gr.Button)}
    return shown


def scores(result):
    """All scores in a JSON value, in their order."""
    if isinstance(result, list):
        return [*chain(*map(scores, result))]
    if isinstance(result, dict):
        own = [np.ravel(value) for name, value in result.items() if name in ("scores", "value")]
        return [*chain(*own), *chain(*map(scores, result.values()))]
    return []


@pytest.mark.parametrize("button", [*example_buttons()])
def test_the_code_of_an_example_gives_the_same_in_an_empty_folder(button, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "page"))
    shown = pressed(button)
    expected = scores(json.loads(Path(shown["↓ JSON"]["value"]).read_text(encoding="utf-8")))
    assert expected
    for name, again in (("Python", by_python), ("Command line", by_command)):
        folder = tmp_path / name
        folder.mkdir()
        with contextlib.chdir(folder):
            np.testing.assert_allclose(scores(again(shown[name])), expected, rtol=1e-3, atol=1e-5, err_msg=name)


def by_python(code):
    names = {}
    exec(compile(code, "code", "exec"), names)
    if isinstance(names.get("result"), Survey):
        names["result"].save("report.json")
        return json.loads(Path("report.json").read_text(encoding="utf-8"))
    if "result" in names:
        return names["result"].results
    results = chain(*names["table"]) if "table" in names else names.values()
    return [result.to_dict() for result in results if hasattr(result, "to_dict")]


def by_command(script):
    if "whyformer evaluate" in script:
        run_script(script, "--quiet")
        return json.loads(Path("results", "results.json").read_text())
    if "whyformer survey" in script:
        run_script(script, "--quiet")
        return json.loads(Path("report.json").read_text(encoding="utf-8"))
    return [json.loads(line) for printed in run_script(script, "--json", "--quiet") for line in printed.splitlines()]


@pytest.mark.parametrize(
    "box", [block for block in PAGE.blocks.values() if isinstance(block, gr.Textbox)], ids=lambda box: box.label
)
def test_a_text_is_not_cut_before_the_page_can_say_that_it_is_too_long(box):
    assert box.max_length is None


@pytest.mark.parametrize("label", ["Model", "Method", "Methods"])
def test_a_name_that_is_not_in_the_list_is_handed_to_the_tab_which_refuses_it_in_one_line(label):
    lists = [block for block in PAGE.blocks.values() if isinstance(block, gr.Dropdown) and block.label == label]
    assert lists
    for one in lists:
        assert one.preprocess(["../x", 1] if one.multiselect else "../x") == (
            ["../x", "1"] if one.multiselect else "../x"
        )
