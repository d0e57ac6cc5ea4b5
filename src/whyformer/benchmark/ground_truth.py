"""Ground truth: what an answer depends on, at every place of the model's input."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from whyformer.axes import PixelTruth
from whyformer.benchmark.batch import SAMPLE, SampleBatch
from whyformer.data.examples import UNLABELLED
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.layouts import Box


def pixel_truths(batch: SampleBatch) -> PixelTruth | None:
    """Masks of all pictures at the pixels the model sees; None if any lacks one."""
    masks = [_pixel_truth(batch, row) for row in range(len(batch))]
    known = [mask for mask in masks if mask is not None]
    return torch.stack(known) if len(known) == len(masks) else None


def part_truths(batch: SampleBatch, part: str) -> Tensor | None:
    """The truth at every place of a part [sample place], UNKNOWN if not annotated; None without any."""
    if part == "image" and "pixel_values" in batch.inputs:
        masks = pixel_truths(batch)
        return None if masks is None else masks.flatten(1)
    regions = [sample.regions for sample in batch.samples if sample.regions is not None]
    if part == "regions" and len(regions) == len(batch):
        return torch.from_numpy(np.stack(regions)).long().to(batch.inputs[SAMPLE].device)
    if part == "text" and all(sample.words is not None for sample in batch.samples):
        return _token_truths(batch)
    return None


def _pixel_truth(batch: SampleBatch, row: int) -> Tensor | None:
    mask, box = batch.samples[row].mask, _seen_box(batch.encodings[row])
    if mask is None or box is None:
        return None
    height, width = batch.content_size(row)
    resized = Image.fromarray(mask).transform((width, height), Image.Transform.EXTENT, box, fillcolor=UNLABELLED)
    whole = torch.full(batch.image_size, UNLABELLED, dtype=torch.long)
    whole[:height, :width] = torch.from_numpy(np.array(resized)).long()
    return whole.to(batch.inputs[SAMPLE].device)


def _seen_box(encoding: EncodedExample) -> Box | None:
    """Box of an example's picture that the model sees, in its pixels."""
    if "image" in encoding.parts:
        box: Box = encoding.parts["image"].box
        return box
    pictured = encoding.parts.get("image_text")
    if pictured is None or len(pictured.pictures) != 1 or len(pictured.boxes[0]) != 1:
        return None
    (width, height), ((left, top, right, bottom),) = pictured.pictures[0].size, pictured.boxes[0]
    return left * width, top * height, right * width, bottom * height


def _token_truths(batch: SampleBatch) -> Tensor:
    """The mark of each token's word; only of the prompt, if a template surrounds it."""
    truths = torch.full(batch.inputs["input_ids"].shape, UNLABELLED)
    for row, (sample, encoding) in enumerate(zip(batch.samples, batch.encodings, strict=True)):
        assert encoding.chunk is not None
        assert sample.words is not None
        text = encoding.chunk.layout.texts[0]
        prompt = text if sample.prompt is None else sample.prompt
        first = text.index(prompt)
        for place, (_, end) in zip(encoding.chunk.positions, encoding.chunk.layout.offsets, strict=True):
            if first < end <= first + len(prompt):  # a token may start with the space before its word
                word = len(text[first:end].split()) - 1
                truths[row, place] = int(sample.words[word])
    return truths.to(batch.inputs[SAMPLE].device)
