"""Images, alone, with a text, or with a point or box prompt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from whyformer.axes import Inputs, StepPixels, at_least_float32
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.fills import Colour, Fill, blanked, fill_colour
from whyformer.inputs.layouts import Box, Patches, covered_box
from whyformer.inputs.modality import FileKind, ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.inputs.parts import real_grid
from whyformer.inputs.read import image_of, point_or_box, two_of
from whyformer.inputs.removable import PartRemoval, PartUnits, RemovablePart, TraceRemoval, units_of_shape
from whyformer.inputs.road_imputation import imputed
from whyformer.modalities.picture_layouts import PATCH_KIND
from whyformer.modalities.text import text_stream, word_count
from whyformer.modalities.written import written_of
from whyformer.models.families import FAMILIES
from whyformer.models.family import JOINT
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, patch_grid

if TYPE_CHECKING:
    from whyformer.tracing.trace import Trace

LONGEST = 16  # largest aspect ratio of a picture that is passed to the processor uncropped
SUPERPIXELS = 64  # in a picture, about
POINT = 0.01  # radius of a point's mark, as a share of the picture's longer side


@dataclass(frozen=True)
class Picture:
    """A picture, the part of it that the model sees, and a point or box prompt, if any."""

    image: Image.Image
    box: Box
    prompt: tuple[float, ...] | None = None


def picture_of(example: Any, loaded_model: LoadedModel) -> Picture:
    """Read a picture, and find the part of it that the processor keeps."""
    image = image_of(example)
    return Picture(image, covered_box(loaded_model.image_processor, image.size))


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Encode a picture, with the text or prompt that the model takes with it."""
    task = loaded_model.task
    if task.cuts_out:
        picture, prompt = two_of(example, "a picture and a point or a box of it: ('street.jpg', (0.4, 0.6))")
        yield {"image": replace(picture_of(picture, loaded_model), prompt=point_or_box(prompt))}
    elif loaded_model.tokenizer is not None:
        picture, text = two_of(example, "a picture and a text: ('street.jpg', 'a red bus')")
        chunk = whole_text(text, loaded_model, truncate=truncate)
        written = {"written": written_of([], loaded_model)} if task.has_decoder else {}
        yield {"image": picture_of(picture, loaded_model), "text": chunk, **written}
    else:
        yield {"image": picture_of(example, loaded_model)}


def collate(loaded_model: LoadedModel, pictures: Sequence[Picture]) -> Inputs:
    """Run the image processor, and scale point and box prompts to its pixels."""
    processor, takes = loaded_model.image_processor, inspect.signature(loaded_model.model.forward).parameters
    batch = processor(images=[_shortened(one.image, processor) for one in pictures], return_tensors="pt")
    own = {name: batch[name] for name in ("pixel_values", "pixel_mask") if name in batch and name in takes}
    return own | _prompt_inputs(pictures, own)


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the patches, after any leading tokens, or the pixels if these are a stream."""
    row = FAMILIES.get(getattr(config_of(model), "model_type", ""))
    if "pixel_values" not in inputs or (row is not None and row.modality not in (None, "image")):
        return None
    words = word_count(inputs)
    shared = next((stream for stream in ("image", JOINT) if stream in lengths), text_stream(lengths))
    height, width = inputs["pixel_values"].shape[-2:]
    if "pixels" in lengths:
        return PartPlace("picture", "pixels", 0, height * width, (height, width))
    if shared == JOINT:
        grid = patch_grid(model, (height, width), height * width)
        return PartPlace("picture", JOINT, words + 1, lengths[JOINT] - words - 1, grid)  # after its class token
    if shared not in lengths:
        return None
    rows, columns = patch_grid(model, (height, width), lengths[shared])
    return PartPlace("picture", shared, lengths[shared] - rows * columns, rows * columns, (rows, columns))


def lay_out(picture: Picture, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on the patches, without padding."""
    layout = _patches(picture, row, forward, place)
    return ScoredLayout("image", layout, scores[place.first : place.first + layout.size])


def _patches(picture: Picture, row: int, forward: ForwardBatch, place: PartPlace) -> Patches:
    inputs, grid = forward.inputs, place.grid
    assert grid is not None
    if place.stream == JOINT:
        return Patches(picture.image, *real_grid(inputs, row, grid), picture.box)
    height, width = inputs["pixel_values"].shape[-2:]
    left, top, right, bottom = picture.box
    if "pixel_mask" in inputs:  # a picture smaller than the others of its batch is padded at the right and bottom
        real = inputs["pixel_mask"][row].bool()
        right *= width / int(real.any(dim=0).sum())
        bottom *= height / int(real.any(dim=1).sum())
    outline = _outline(picture, row, forward) if picture.prompt is None else _prompt_outline(picture, picture.prompt)
    return Patches(picture.image, *grid, (left, top, right, bottom), outline)


def _prompt_outline(picture: Picture, prompt: tuple[float, ...]) -> Box:
    """The box prompt, or a small box around a point prompt, in the picture's pixels."""
    width, height = picture.image.size
    reach = POINT * max(width, height) if len(prompt) == 2 else 0.0
    left, top, right, bottom = prompt if len(prompt) == 4 else (*prompt, *prompt)
    return left * width - reach, top * height - reach, right * width + reach, bottom * height + reach


def _outline(picture: Picture, row: int, forward: ForwardBatch) -> Box | None:
    """The box of the explained detection, in the picture's pixels; None if it has no area."""
    boxes = getattr(forward.output, "pred_boxes", None)
    if boxes is None or forward.queries is None:
        return None
    x, y, width, height = boxes[row, forward.queries[row]].tolist()
    left, top, right, bottom = picture.box
    across, down = right - left, bottom - top
    outline = (
        left + (x - width / 2) * across,
        top + (y - height / 2) * down,
        left + (x + width / 2) * across,
        top + (y + height / 2) * down,
    )
    return outline if outline[0] < outline[2] and outline[1] < outline[3] else None


def _prompt_inputs(pictures: Sequence[Picture], inputs: Inputs) -> Inputs:
    """Scale point or box prompts to processed pixels, where the picture is at the top left of a square."""
    places: list[list[float]] = []
    for one in pictures:
        if one.prompt is not None:
            scale = inputs["pixel_values"].shape[-1] / max(one.image.size)
            sides = [int(side * scale + 0.5) for side in one.image.size]
            places.append([share * side for share, side in zip(one.prompt, sides * 2, strict=False)])
    if len({len(place) for place in places}) > 1:
        raise WhyformerError("Points and boxes do not fit one batch: give prompts of one kind, or batch_size=1.")
    if not places:
        return {}
    prompts = torch.tensor(places)[:, None]
    return {"input_boxes": prompts} if prompts.shape[-1] == 4 else {"input_points": prompts[:, None]}


def _shortened(image: Image.Image, processor: Any) -> Image.Image:
    """Crop a very elongated picture to its middle if the processor would enlarge all of it to keep that."""
    width, height = image.size
    spare = (max(width, height) - LONGEST * min(width, height)) // 2
    if spare <= 0 or not getattr(processor, "do_center_crop", False) or "shortest_edge" not in processor.size:
        return image
    return image.crop((spare, 0, width - spare, height) if width > height else (0, spare, width, height - spare))


def _removable(trace: Trace, place: PartPlace, units: PartUnits) -> RemovablePart:
    """The pixels without padding, and the patch of each."""
    inputs = trace.question.inputs
    pixels = inputs["pixel_values"]
    batch, _, height, width = pixels.shape
    assert place.grid is not None
    mask = inputs.get("pixel_mask", torch.ones(batch, height, width, device=pixels.device)).bool().cpu().numpy()
    patches = np.full((batch, height, width), -1)
    for row in range(batch):
        rows, columns = place.grid
        high, wide = height, width
        if place.stream == JOINT:  # the stream has the picture's patches only, without padding
            rows, columns = real_grid(inputs, row, place.grid)
            high, wide = int(mask[row].any(axis=1).sum()), int(mask[row].any(axis=0).sum())
        down, right = np.arange(high) * rows // high, np.arange(wide) * columns // wide
        patches[row, :high, :wide] = down[:, None] * columns + right
    numbers = np.where(mask, patches, -1)
    if isinstance(choice := units.get("image"), Tensor):
        numbers = np.where(mask, units_of_shape("image", choice, (batch, height, width)), -1)
    elif choice == "superpixel":
        numbers = np.where(mask, np.stack([superpixels(one) for one in pixels]), -1)
    tokens = np.where(patches < 0, -1, patches + place.first)
    return RemovablePart("image", place.stream, (height, width), numbers.reshape(batch, -1), tokens.reshape(batch, -1))


def superpixels(picture: Tensor) -> np.ndarray:
    """The superpixel of each pixel of a picture [channel, height, width], by SLIC."""
    values = at_least_float32(picture).permute(1, 2, 0).cpu().numpy()
    spread = max(float(values.max() - values.min()), 1e-6)
    segments: np.ndarray = extra("skimage.segmentation").slic(
        (values - values.min()) / spread, n_segments=SUPERPIXELS, start_label=0
    )
    return segments


def _without(inputs: Inputs, kept: Tensor, removal: TraceRemoval) -> Inputs:
    """Fill the pixels that are not kept."""
    return {"pixel_values": _filled(inputs["pixel_values"], kept, removal.fill)}


def _options(
    options: Mapping[str, Any], loaded_model: LoadedModel, inputs: Inputs, encoded: Sequence[EncodedExample]
) -> dict[str, Any]:
    """The colour of removed pixels, after the processor's normalisation."""
    fill = options.get("fill", "mean")
    if "pixel_values" not in inputs or not isinstance(fill, str) or fill not in ("black", "mean"):
        return {}
    return {"fill": fill_colour(cast(Colour, fill), loaded_model.image_processor)}


def _filled(pixels: Tensor, kept: Tensor, fill: Fill | Tensor) -> StepPixels:
    colour = fill if isinstance(fill, Tensor) else torch.zeros(1, 1, 1)
    if kept.dtype != torch.bool:
        if isinstance(fill, str) and fill == "road":
            raise WhyformerError("fill='road' imputes whole pixels, but this method dims them: use 'mean' or 'black'.")
        shares, blank = kept[:, :, None].to(pixels), colour.to(pixels)
        return blank + shares * (pixels - blank)
    if isinstance(fill, str) and fill == "road":
        return torch.cat([imputed(pixels, one[None]) for one in ~kept])
    return blanked(pixels, ~kept, colour)


def noise(loaded_model: LoadedModel) -> Image.Image:
    """Noise of the model's image size."""
    processor = loaded_model.image_processor
    size = processor.crop_size if getattr(processor, "do_center_crop", False) else processor.size
    edge = size.get("shortest_edge") or size.get("longest_edge")
    height, width = (size.get(side) or edge for side in ("height", "width"))
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


MODALITY = Modality(
    "image",
    collate,
    place,
    lay_out,
    encode,
    noise=noise,
    noun="picture",
    files=FileKind(
        IMAGE_SUFFIXES,
        "picture",
        "pictures",
        "an image file, and this model takes a text: choose a model for images, or give (picture, text)",
    ),
    read=image_of,
    types=(Image.Image,),
    arrays=lambda picture: (picture,),
    removal=PartRemoval(_removable, _without, _options),
    layouts={Patches: PATCH_KIND},
)
