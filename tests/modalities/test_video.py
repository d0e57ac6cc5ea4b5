"""Videos: read, sampled, explained tubelet by tubelet, drawn and stored."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from commands import run
from pairs import pairs
from tiny_models import noise
from tiny_videos import RATE, VIDEO_FAMILIES, clip, processor_of
from whyformer import Explanation, UnsupportedModel, WhyformerError, attribute, explain, explain_batch
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.modality import ForwardBatch
from whyformer.methods.registry import trace_methods
from whyformer.modalities import video
from whyformer.modalities.tubelets import Tubelets, by_step, figure, frame_heatmap, page
from whyformer.models.loading import LoadedModel
from whyformer.render.colour import VEIL
from whyformer.render.terminal import coloured_explanation, plain_explanation
from whyformer.results.part import Part
from whyformer.tracing.build import trace

OPTIONS = {"bi_head": {"steps": 3}, "bi_token": {"steps": 3}, "integrated_gradients": {"steps": 3}}
EMBEDDINGS = {
    "videomae": "videomae.embeddings",
    "vivit": "vivit.embeddings",
    "timesformer": "timesformer.embeddings",
    "vjepa2": "vjepa2.encoder.embeddings",
}
SOURCE = Path(video.__file__).parents[1]
OWN = {"modalities/video.py", "modalities/tubelets.py", "render/templates/video.html.j2"}
ROWS = {"models/families.py", "models/task.py", "models/videos.py"}  # the last has how two architectures move tokens
families = pytest.mark.parametrize("family", VIDEO_FAMILIES)


@cache
def loaded(family: str) -> LoadedModel:
    return LoadedModel(VIDEO_FAMILIES[family]().double().requires_grad_(False), processor_of(family), family)


@cache
def explanation() -> Explanation:
    return explain((clip(), RATE), loaded("videomae"), 1, "input_x_gradient")


def write_video(path: Path, frames: np.ndarray) -> None:
    """A file without loss, at ten frames a second."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "bgr0"
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode())


def test_only_its_own_modules_and_rows_know_of_videos():
    sources = [path for suffix in ("py", "j2", "js") for path in SOURCE.rglob(f"*.{suffix}")]
    word = re.compile('video(?!_processor")|tubelet', re.IGNORECASE)  # a part of processors in transformers
    knows = {path for path in sources if word.search(path.read_text("utf-8"))}
    assert {str(path.relative_to(SOURCE)) for path in knows} == OWN | ROWS


@pytest.mark.parametrize(
    ("method", "family"),
    pairs([*trace_methods()], [*VIDEO_FAMILIES], with_all={"videomae", "timesformer", "generic_attention"}),
)
def test_a_batch_is_explained_like_its_videos_one_by_one(method, family):
    clips, options = [clip(seed=1), clip(7, seed=2)], OPTIONS.get(method, {})
    try:
        together = explain_batch(clips, loaded(family), 1, method, batch_size=2, **options)
    except UnsupportedModel as error:
        with pytest.raises(UnsupportedModel, match=re.escape(str(error))):  # one alone is no other matter
            explain(clips[0], loaded(family), 1, method, **options)
        return
    for one, example in zip(together, clips, strict=True):
        alone = explain(example, loaded(family), 1, method, **options).parts["video"]
        np.testing.assert_allclose(one.parts["video"].scores, alone.scores, rtol=1e-6, atol=1e-10)
        again = explain(example, loaded(family), 1, method, **options).parts["video"]
        assert np.array_equal(alone.scores, again.scores)


@families
def test_every_tubelet_has_the_score_of_the_token_that_its_pixels_make(family):
    model = loaded(family).model
    (encoded,) = encode(loaded(family), [clip()])
    inputs = model_inputs(loaded(family), [encoded])
    ((name, pixels),) = inputs.items()
    kept = []
    handle = model.get_submodule(EMBEDDINGS[family]).register_forward_hook(lambda *call: kept.append(call[-1]))
    grid = video.grid_of(model, inputs)
    try:
        model(**inputs)
        tokens = kept[0].shape[1]
        place = video.place(model, inputs, {"image": tokens})
        numbers = torch.arange(tokens, dtype=torch.float64)
        laid = video.lay_out(encoded.parts["video"], 0, ForwardBatch(model, inputs), place, numbers).scores
        frames = pixels.shape[1] // grid.steps
        cells = product(range(grid.steps), range(grid.rows), range(grid.columns))
        for number, (step, row, column) in enumerate(cells):
            changed = pixels.clone()
            changed[:, step * frames, :, row * 8 + 3, column * 8 + 5] += 1
            model(**{name: changed})
            differs = (kept[-1] != kept[0]).any(dim=2)[0].nonzero()[:, 0].tolist()
            assert differs == [int(laid[number])]
    finally:
        handle.remove()


@families
def test_scores_of_pixels_are_summed_in_their_tubelet(family):
    (encoded,) = encode(loaded(family), [clip()])
    inputs = model_inputs(loaded(family), [encoded])
    scores = attribute(loaded(family).model, inputs, 1, "input_x_gradient")["pixels"][0]
    part = explain(clip(), loaded(family), 1, "input_x_gradient").parts["video"]
    whole = scores.reshape(4, 32, 32)
    frames = 4 // part.layout.steps
    for number, (step, row, column) in enumerate(product(range(part.layout.steps), range(4), range(4))):
        own = whole[step * frames : (step + 1) * frames, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        assert part.scores[number] == pytest.approx(float(own.sum()), rel=1e-5, abs=1e-9)


def test_a_query_that_pools_reads_all_blocks_before_it():
    model, inputs = loaded("vjepa2").model, {"pixel_values_videos": noise(1, 4, 3, 32, 32).double()}
    *maps, pooled = (record.map.mean(dim=1)[0] for record in trace(model, inputs, 1).records)
    assert [tuple(one.shape) for one in maps] == [(32, 32)] * 3
    row = pooled[0]
    for mean in reversed(maps):
        row = row + row @ mean
    torch.testing.assert_close(attribute(model, inputs, 1, "rollout")["image"][0], row, rtol=1e-9, atol=1e-12)


def test_the_frames_shown_are_the_middle_ones_of_equal_spans():
    assert video.frame_numbers(10, 4) == (1, 3, 6, 8)
    assert video.frame_numbers(4, 4) == (0, 1, 2, 3)
    assert video.frame_numbers(2, 4) == (0, 0, 1, 1)
    shown = explanation()
    assert shown.parts["video"].layout.numbers == (1, 3, 6, 8)
    assert "The model takes 4 evenly spaced frames of 10." in shown.notes
    assert explain(clip(4), loaded("videomae"), 1, "rollout").notes == ()


def test_tubelets_are_named_by_their_time_or_by_their_frames():
    assert explanation().tokens[0] == "0.10–0.30 s, row 1, column 1"
    untimed = explain(clip(), loaded("timesformer"), 1, "rollout")
    assert untimed.tokens[-1] == "frame 9, row 4, column 4"
    assert explain(clip(), loaded("vivit"), 1, "rollout").tokens[0] == "frames 2–4, row 1, column 1"


@pytest.mark.parametrize("as_list", [False, True])
def test_a_file_is_read_like_its_frames(tmp_path, as_list):
    frames, path = clip(), tmp_path / "disc.mkv"
    write_video(path, frames)
    given = [Image.fromarray(frame) for frame in frames] if as_list else frames
    read = explain(path, loaded("videomae"), 1, "rollout")
    assert read == explain((given, RATE), loaded("videomae"), 1, "rollout")
    assert read.parts["video"].layout.rate == RATE


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (np.zeros((48, 64, 3), np.uint8), r"array \[frame, height, width, 3\], not one of shape \(48, 64, 3\)"),
        ([], "not an empty list"),
        (7, "not an int"),
        ([Image.new("RGB", (8, 8)), Image.new("RGB", (8, 9))] * 2, "must have the same size"),
        ("none.mp4", "No file 'none.mp4'"),
    ],
)
def test_what_is_no_video_is_refused(example, reason):
    with pytest.raises(WhyformerError, match=reason):
        explain(example, loaded("videomae"))


def test_a_file_that_is_no_video_is_refused(tmp_path):
    path = tmp_path / "broken.mp4"
    path.write_bytes(b"not a video at all" * 20)
    with pytest.raises(WhyformerError, match=r"broken.mp4' is not a video that can be read"):
        explain(path, loaded("videomae"))


def test_parts_of_a_video_are_not_removed():
    with pytest.raises(UnsupportedModel, match="parts can only be removed from single pictures"):
        explain(clip(), loaded("videomae"), 1, "kernel_shap")


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files_give_the_video_back_bit_for_bit(tmp_path, suffix):
    path = tmp_path / f"disc.{suffix}"
    explanation().save(path)
    assert Explanation.load(path) == explanation()


def test_a_table_has_frames_rows_and_columns():
    table = explanation().to_pandas()
    assert list(table.columns) == ["part", "token", "score", "from_frame", "to_frame", "row", "column"]
    assert table.iloc[-1][["from_frame", "to_frame", "row", "column"]].tolist() == [7, 9, 4, 4]


def test_the_page_is_a_player_without_scripts_or_requests(tmp_path):
    path = tmp_path / "disc.html"
    explanation().save(path, what_if=False)
    html = path.read_text()
    assert "<script" not in html
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert html.count('type="radio"') == 2
    heights = [float(height) for height in re.findall(r'style="height: ([\d.]+)%"', html)]
    sums = np.abs(by_step(explanation().parts["video"]))
    np.testing.assert_allclose(heights, 100 * sums / sums.max(), atol=0.06)
    is_checked = [" checked" in radio for radio in re.findall(r'<input type="radio"[^>]*>', html)]
    assert is_checked == [height == max(heights) for height in heights]


@pytest.mark.parametrize("sign", [1, -1])
def test_bars_hang_from_the_middle_where_a_step_is_against_the_answer(sign):
    layout, scores = explanation().parts["video"].layout, np.ones(32, np.float32)
    scores[16:] = sign
    player = page(Part(layout, scores), 320)
    assert ('class="curve signed"' in player) is (sign < 0)
    assert player.count('<i class="against"') == (sign < 0)


def test_the_heat_lies_on_the_tubelet_that_has_the_score():
    layout, scores = explanation().parts["video"].layout, np.zeros(32, np.float32)
    scores[16 + 4 * 1 + 2] = 1.0  # the second step, row 2, column 3
    part = Part(layout, scores)
    cold, hot = (np.asarray(frame_heatmap(part, frame), dtype=int) for frame in (0, 2))
    frames = [np.asarray(layout.frames[frame].convert("RGB"), float) for frame in (0, 2)]
    left, top, right, bottom = layout.box
    within = (slice(round(top), round(bottom)), slice(round(left), round(right)))
    np.testing.assert_allclose(cold[within], VEIL * frames[0][within], atol=0.51)
    added = (hot - VEIL * frames[1]).sum(axis=2)
    down, across = np.unravel_index(added.argmax(), added.shape)
    assert int((down - top) / (bottom - top) * 4) == 1
    assert int((across - left) / (right - left) * 4) == 2


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_picture_has_a_column_for_each_step_and_is_as_wide_as_asked(steps):
    film = Image.fromarray(np.concatenate(clip(4)))
    layout = Tubelets(film, (0, 1, 2, 3), RATE, steps, 2, 2, (0, 0, 64, 48))
    drawn = figure(Part(layout, np.ones(layout.size, np.float32)), 600)
    assert drawn.width == 600


def test_a_terminal_shows_the_curve_and_the_strongest_step():
    lines = plain_explanation(explanation()).splitlines()
    sums = by_step(explanation().parts["video"])
    assert "█" in lines[1]
    assert "▀" in coloured_explanation(explanation(), Console(force_terminal=True, color_system="truecolor", width=80))
    assert explanation().parts["video"].layout.moments[int(np.abs(sums).argmax())] + ":" in lines


def test_layouts_of_no_video_are_refused():
    film = Image.new("RGB", (32, 64))
    with pytest.raises(WhyformerError, match="not 2 frames in 0 steps"):
        Tubelets(film, (0, 1), None, 0, 1, 1, (0, 0, 32, 32))
    with pytest.raises(WhyformerError, match="3 frames of one size do not fill"):
        Tubelets(film, (0, 1, 2), None, 1, 1, 1, (0, 0, 32, 32))
    with pytest.raises(WhyformerError, match="frames per second, not 0"):
        Tubelets(film, (0, 1), 0.0, 1, 1, 1, (0, 0, 32, 32))


@families
def test_a_saved_model_is_loaded_with_its_processor_and_explained_from_the_command_line(tmp_path, family):
    model, processor = VIDEO_FAMILIES[family](), processor_of(family)
    model.save_pretrained(tmp_path / family)
    processor.save_pretrained(tmp_path / family)
    if family == "vjepa2":  # whose processor is one of videos
        (tmp_path / family / "preprocessor_config.json").rename(tmp_path / family / "video_preprocessor_config.json")
    write_video(tmp_path / "disc.mkv", clip())
    run("explain", tmp_path / "disc.mkv", "--model", tmp_path / family, "--out", tmp_path / "disc.json")
    assert list(Explanation.load(tmp_path / "disc.json").parts) == ["video"]
