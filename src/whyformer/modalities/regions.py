"""Detected regions of a picture, with a question about them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.fills import deleted
from whyformer.inputs.layouts import Boxes
from whyformer.inputs.modality import FileKind, ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.inputs.read import Regions, regions_of, two_of
from whyformer.inputs.removable import PartRemoval, PartUnits, RemovablePart, TraceRemoval, token_line
from whyformer.modalities.picture_layouts import BOX_KIND
from whyformer.modalities.text import text_stream, word_count
from whyformer.models.family import JOINT
from whyformer.models.input_tensors import REGION_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of

if TYPE_CHECKING:
    from whyformer.tracing.trace import Trace


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Encode regions and their text."""
    regions, text = two_of(example, "regions and a text: (whyformer.Regions(…), 'what colour is the circle?')")
    yield {"regions": regions_of(regions), "text": whole_text(text, loaded_model, truncate=truncate)}


def collate(loaded_model: LoadedModel, regions: Sequence[Regions]) -> Inputs:
    """Stack features and boxes, padded with masked regions."""
    config = config_of(loaded_model.model)
    width = getattr(config, "visual_feat_dim", None) or getattr(config, "visual_embedding_dim", None)
    wrong = next((part.features.shape[1] for part in regions if part.features.shape[1] != width), None)
    if wrong is not None:
        raise WhyformerError(
            f"The regions have {wrong} features each, this model reads {width}: use its own detector's."
        )
    most = max(len(part.boxes) for part in regions)
    features, boxes = (
        torch.stack([F.pad(torch.as_tensor(x, dtype=torch.float32), (0, 0, 0, most - len(x))) for x in parts])
        for parts in ([part.features for part in regions], [part.shares for part in regions])
    )
    mask = torch.stack([(torch.arange(most) < len(part.boxes)).long() for part in regions])
    if "visual_feats" in inspect.signature(loaded_model.model.forward).parameters:
        return {"visual_feats": features, "visual_pos": boxes, "visual_attention_mask": mask}
    types = torch.ones_like(mask)
    return {"visual_embeds": features, "visual_attention_mask": mask, "visual_token_type_ids": types}


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the regions: a separate stream, or the end of one shared with the words."""
    shared = next((stream for stream in ("image", JOINT) if stream in lengths), text_stream(lengths))
    if "pixel_values" in inputs or shared not in lengths or not any(name in inputs for name in REGION_INPUTS):
        return None
    first = 0 if shared == "image" else word_count(inputs)
    return PartPlace("regions", shared, first, lengths[shared] - first)


def lay_out(regions: Regions, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on the regions' boxes, without padding."""
    boxes = Boxes(regions.image, tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in regions.boxes))
    return ScoredLayout("image", boxes, scores[place.first : place.first + boxes.size])


def _removable(trace: Trace, place: PartPlace, units: PartUnits) -> RemovablePart:
    """The regions without padding."""
    mask = trace.question.inputs.get("visual_attention_mask")
    may_go = trace.masks[place.stream][:, place.first :] if mask is None else mask.bool()
    return token_line("regions", place.stream, place.first, may_go, units)


def _without(inputs: Inputs, kept: Tensor, removal: TraceRemoval) -> Inputs:
    """Delete the regions that are not kept."""
    own = {name: inputs[name] for name in REGION_INPUTS if name in inputs}
    return deleted(own, kept == 0, REGION_INPUTS)


def noise(loaded_model: LoadedModel) -> Regions:
    """Four regions with noise features."""
    config = config_of(loaded_model.model)
    width = getattr(config, "visual_feat_dim", None) or config.visual_embedding_dim
    boxes = np.array([[0, 0, 16, 16], [16, 0, 32, 16], [0, 16, 16, 32], [16, 16, 32, 32]])
    features = np.random.default_rng(0).standard_normal((4, width), dtype=np.float32)
    return Regions(Image.new("RGB", (32, 32)), boxes, features)


MODALITY = Modality(
    "regions",
    collate,
    place,
    lay_out,
    encode,
    noise=noise,
    noun="regions",
    files=FileKind(frozenset({".npz"}), "file of regions", "files of regions"),
    read=regions_of,
    types=(Regions,),
    arrays=lambda regions: (regions.image, regions.boxes, regions.features),
    removal=PartRemoval(_removable, _without),
    layouts={Boxes: BOX_KIND},
)
