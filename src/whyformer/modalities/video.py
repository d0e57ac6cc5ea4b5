"""Videos: frames are sampled from a clip, and every tubelet of patches gets a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel, WhyformerError, with_article
from whyformer.extras import extra
from whyformer.inputs.layouts import Box, covered_box
from whyformer.inputs.modality import FileKind, ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.inputs.read import check_file, image_of
from whyformer.modalities import image
from whyformer.modalities.tubelets import TUBELET_KIND, Tubelets
from whyformer.models.families import FAMILIES
from whyformer.models.loading import LoadedModel
from whyformer.models.pictures import WHOLE
from whyformer.models.structure import config_of, main_input

PATCH_MAJOR = ("timesformer",)  # whose tokens are ordered by patch, then by time
LARGEST_FRAME = 320  # longer side of a stored frame, in pixels


@dataclass(frozen=True, eq=False)
class Clip:
    """The frames of a video that the model takes, their indices, the length of the video, and its frame rate."""

    frames: tuple[Image.Image, ...]
    numbers: tuple[int, ...]
    length: int
    rate: float | None
    box: Box = WHOLE  # the part of a frame that the processor keeps, in pixels

    @property
    def notes(self) -> tuple[str, ...]:
        """Says how many frames were sampled, if not all."""
        if len(set(self.numbers)) == self.length:
            return ()
        return (f"The model takes {len(self.frames)} evenly spaced frames of {self.length}.",)


def clip_of(example: Any, count: int) -> Clip:
    """Sample `count` evenly spaced frames of a video: a file, an array [frame, height, width, 3], or a list of images.

    An array or list may come with its frame rate: (frames, rate).
    """
    rate = None
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[1], (int, float)):
        example, rate = example[0], float(example[1])
    if isinstance(example, (str, Path)):
        return _read(Path(example), count)
    if isinstance(example, np.ndarray) and example.ndim != 4:
        raise WhyformerError(f"A video is an array [frame, height, width, 3], not one of shape {example.shape}.")
    if not isinstance(example, (np.ndarray, list, tuple)) or not len(example):
        raise WhyformerError(
            f"A video is a file, an array [frame, height, width, 3] or a list of pictures, not {_excerpt(example)}."
        )
    numbers = frame_numbers(len(example), count)
    frames = tuple(image_of(example[place]) for place in numbers)
    if len({frame.size for frame in frames}) > 1:
        raise WhyformerError("The frames of a video must have the same size: resize them.")
    return Clip(frames, numbers, len(example), rate)


def frame_numbers(length: int, count: int) -> tuple[int, ...]:
    """The middle frame of each of `count` equal spans of a video; frames of a short video repeat."""
    return tuple(((2 * np.arange(count) + 1) * length // (2 * count)).tolist())


def _read(path: Path, count: int) -> Clip:
    check_file(path)
    av = extra("av", "video")
    try:
        with av.open(str(path)) as file:
            stream = file.streams.video[0]
            most = Image.MAX_IMAGE_PIXELS
            if most and stream.width * stream.height > most:
                raise WhyformerError(f"The frames of {str(path)!r} have more than {most:,} pixels: shrink them.")
            length = sum(packet.size > 0 for packet in file.demux(stream))
            numbers = frame_numbers(length, count)
            file.seek(0)
            wanted = dict(_decoded(file, set(numbers)))
            rate = None if stream.average_rate is None else float(stream.average_rate)
    except (av.FFmpegError, IndexError) as error:
        raise WhyformerError(f"The file {str(path)!r} is not a video that can be read: {error}") from error
    if not wanted:
        raise WhyformerError(f"The file {str(path)!r} has no frames.")
    known = sorted(wanted)  # a damaged file may end before its last frame
    numbers = tuple(min(known, key=lambda one: abs(one - number)) for number in numbers)
    return Clip(tuple(wanted[number] for number in numbers), numbers, length, rate)


def _decoded(file: Any, numbers: set[int]) -> Iterator[tuple[int, Image.Image]]:
    for number, frame in enumerate(file.decode(video=0)):
        if number in numbers:
            yield number, frame.to_image()
        if number >= max(numbers):
            return


def _excerpt(example: Any) -> str:
    return "an empty list" if isinstance(example, (list, tuple)) else with_article(type(example).__name__)


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Sample as many frames as the model takes."""
    config = config_of(loaded_model.model)
    clip = clip_of(example, getattr(config, "num_frames", None) or config.frames_per_clip)
    yield {"video": replace(clip, box=covered_box(loaded_model.image_processor, clip.frames[0].size))}


def collate(loaded_model: LoadedModel, clips: Sequence[Clip]) -> Inputs:
    """Run the processor: pixels [example, frame, channel, height, width], under the model's input name."""
    batch = loaded_model.image_processor([list(clip.frames) for clip in clips], return_tensors="pt")
    name = getattr(loaded_model.model, "main_input_name", "pixel_values")
    return {name: batch["pixel_values"]}


@dataclass(frozen=True)
class TubeletGrid:
    """A grid of tubelets: time steps, rows and columns of patches."""

    steps: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.steps * self.rows * self.columns


def is_video(model: nn.Module) -> bool:
    """Whether the model's family takes videos."""
    row = FAMILIES.get(getattr(config_of(model), "model_type", ""))
    return row is not None and row.modality == "video"


def grid_of(model: nn.Module, inputs: Inputs) -> TubeletGrid:
    """The model's grid of tubelets, from its configuration and pixels."""
    config, (_, pixels) = config_of(model), main_input(inputs)
    frames, _, height, width = pixels.shape[1:]
    tubelet = getattr(config, "tubelet_size", 1)
    patch = config.patch_size if isinstance(tubelet, int) else tubelet[1:]  # ViViT's tubelets have three sides
    tubelet = tubelet if isinstance(tubelet, int) else tubelet[0]
    down, across = (patch, patch) if isinstance(patch, int) else patch
    return TubeletGrid(max(1, frames // tubelet), height // down, width // across)


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the tubelets, after the class token, or the pixels if these are a stream."""
    if not is_video(model) or not {"image", "pixels"} & lengths.keys():
        return None
    if "pixels" in lengths:
        return PartPlace("video", "pixels", 0, lengths["pixels"])
    count = grid_of(model, inputs).size
    if count > lengths["image"]:
        raise UnsupportedModel(f"{type(model).__name__} has {lengths['image']} tokens for {count} tubelets of a video.")
    return PartPlace("video", "image", lengths["image"] - count, count)


def lay_out(clip: Clip, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on the tubelets, step by step; scores of pixels are summed over each."""
    grid, (_, pixels) = grid_of(forward.model, forward.inputs), main_input(forward.inputs)
    if place.stream == "pixels":
        frames, _, height, width = pixels.shape[1:]
        high, wide = height // grid.rows, width // grid.columns
        whole = scores.reshape(frames, height, width)[:, : high * grid.rows, : wide * grid.columns]
        own = whole.reshape(grid.steps, -1, grid.rows, high, grid.columns, wide).sum(dim=(1, 3, 5))
    else:
        own = scores[place.first :]
        if getattr(config_of(forward.model), "model_type", "") in PATCH_MAJOR:
            own = own.reshape(-1, grid.steps).T
    return ScoredLayout("video", _layout(clip, grid), own.flatten())


def _layout(clip: Clip, grid: TubeletGrid) -> Tubelets:
    """Stack the frames vertically, at display size."""
    width, height = clip.frames[0].size
    scale = min(1.0, LARGEST_FRAME / max(width, height))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    film = Image.fromarray(np.concatenate([np.asarray(frame.resize(size)) for frame in clip.frames]))
    left, top, right, bottom = clip.box
    across, down = size[0] / width, size[1] / height
    box = (left * across, top * down, right * across, bottom * down)
    return Tubelets(film, clip.numbers, clip.rate, grid.steps, grid.rows, grid.columns, box)


def noise(loaded_model: LoadedModel) -> list[Image.Image]:
    """The same noise in two frames."""
    return [image.noise(loaded_model)] * 2


MODALITY = Modality(
    "video",
    collate,
    place,
    lay_out,
    encode,
    noise=noise,
    noun="video",
    files=FileKind(
        frozenset({".avi", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ogv", ".webm"}),
        "video",
        "videos",
        "a video file, and this model takes a text: choose a model for videos",
    ),
    layouts={Tubelets: TUBELET_KIND},
)
