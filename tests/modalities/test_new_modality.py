"""A kind of input from outside, in one file: read, explained, removed, drawn, stored, without a change elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import whyformer
from registries import registries_kept
from whyformer import Explanation, Part, WhyformerError, explain, explain_batch
from whyformer.cli.input_sources import open_inputs
from whyformer.cli.inputs import example_of, read_inputs
from whyformer.render.terminal import plain_explanation

SOURCE = Path(whyformer.__file__).parent
# Where sounds are read, and where surveys have cues of their own in them.
KNOWING = {"inputs/layouts.py", "surveys/sound_cues.py", "surveys/scored_samples.py"}
VALUES = [-1.0, -0.5, 0.25, 0.5, 0.75, 1.0]


@pytest.fixture(scope="module")
def series() -> Iterator[ModuleType]:
    with registries_kept():
        import toy_series

        yield toy_series


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rise.series"
    path.write_text("\n".join(map(str, VALUES)))
    return path


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "input_x_gradient", "bi_token", "occlusion"])
def test_it_is_read_and_explained_alone_and_in_a_batch(series, file, method):
    model = series.loaded_classifier()
    one = explain(file, model, "rises", method)
    assert one.parts["series"].tokens == ("step 1", "step 2", "step 3", "step 4", "step 5", "step 6")
    assert np.abs(one.parts["series"].scores).max() > 0
    _, again = explain_batch([VALUES[::-1], file], model, "rises", method)
    np.testing.assert_allclose(again.parts["series"].scores, one.parts["series"].scores, rtol=1e-4, atol=1e-6)


def test_a_step_is_worth_what_the_answer_loses_without_it(series):
    model = series.loaded_classifier()
    scores = explain(VALUES, model, 0, "occlusion").parts["series"].scores
    inputs = series.collate(model, [VALUES])["series"]
    for step in range(series.STEPS):
        shorter = inputs.clone()
        shorter[0, step] = 0
        lost = (model.model(inputs) - model.model(shorter))[0, 0].item()
        assert scores[step] == pytest.approx(lost, abs=1e-5)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_files_give_it_back(series, file, tmp_path, suffix):
    shown = explain(file, series.loaded_classifier(), 0, "rollout")
    shown.save(tmp_path / f"saved{suffix}")
    assert Explanation.load(tmp_path / f"saved{suffix}") == shown


def test_it_is_drawn_everywhere(series, file, tmp_path):
    shown = explain(file, series.loaded_classifier(), 0, "rollout")
    part = Part(shown.parts["series"].layout, np.float32([0, 0, 0, 0, 0, 1]))
    shown = replace(shown, parts={"series": part})
    assert "step 6: 1, +1.00" in plain_explanation(shown)
    shown.save(tmp_path / "page.html")
    assert 'alt="The series"' in (tmp_path / "page.html").read_text("utf-8")
    assert "evidence on 17 % of the series" in (tmp_path / "page.html").read_text("utf-8")
    assert shown.image().width >= 640
    assert [item.text for item in shown.top(1)] == ["step 6"]
    assert shown.to_pandas()["step"].tolist() == [1, 2, 3, 4, 5, 6]


def test_the_command_line_takes_its_files_and_folders_of_them(series, file):
    model = series.loaded_classifier()
    (source,) = read_inputs([str(file)])
    assert example_of(source, None, [], model) == file
    (one,) = open_inputs(read_inputs([str(file.parent)]), model, quiet=True)
    assert one.argument == str(file)
    with pytest.raises(WhyformerError, match="series reads series: give a series file, not 'rising'"):
        example_of(read_inputs(["rising"])[0], None, [], model)
    with pytest.raises(WhyformerError, match="is a series, and this model takes a text: choose a model for series"):
        explain(str(file), "mini-bert")


def test_no_other_code_names_the_layouts_of_sounds_and_videos():
    names = re.compile(r"\b(Frames|Spectrogram|Tubelets)\b")
    knowing = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if names.search(path.read_text("utf-8"))}
    assert {name for name in knowing if not name.startswith("modalities/")} == KNOWING
