"""Every small random model that the tests build, in one list: what it is, what it is given, what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

import tiny_more as more
from tiny_architectures import DECODERS, OTHERS, positioned
from tiny_hybrids import HYBRIDS
from tiny_models import (
    IMAGE_FAMILIES,
    STREAM_FAMILIES,
    TEXT_FAMILIES,
    built,
    captioned,
    image_inputs,
    masked,
    noise,
    photos,
    text_inputs,
    to_translate,
    up_to_the_end,
)
from tiny_sounds import WAVE_FAMILIES, ast
from tiny_vlms import TINY_VLMS
from tiny_windows import WINDOWED
from whyformer.axes import Inputs
from whyformer.targets.scores import Pixel, Target

# Which inputs a mask is about. A detector's pixels are not here: its convolutions see the padding.
CUT_BY = {
    "attention_mask": ("input_ids", "position_ids", "token_type_ids", "bbox"),
    "decoder_attention_mask": ("decoder_input_ids",),
    "visual_attention_mask": ("visual_feats", "visual_pos", "visual_embeds"),
}


def without_padding(inputs: Inputs, example: int) -> Inputs:
    """One example of a batch alone, its padding cut off."""
    alone = one_of(inputs, example)
    for mask, cut in CUT_BY.items():
        if mask in alone:
            real = alone[mask][0].bool()
            alone |= {name: alone[name][:, real] for name in (*cut, mask) if name in alone}
    return alone


def one_of(inputs: Inputs, example: int) -> Inputs:
    """One example of a batch with its padding."""
    return {name: value[example : example + 1] for name, value in inputs.items()}


@dataclass(frozen=True)
class Architecture:
    """A model, a batch for it, its target, and how an example of the batch is given alone.

    `reads_padding` says why a model computes something else of an example without the padding it has in a batch: the
    example alone then keeps it.
    """

    kind: str
    build: Callable[[], nn.Module]
    inputs: Callable[[nn.Module], Inputs]
    target: Target = 1
    alone: Callable[[Inputs, int], Inputs] = without_padding
    reads_padding: str = ""


def _texts(model: nn.Module) -> Inputs:
    """Two texts of different lengths, padded on the right."""
    return positioned(model, {name: value[::2] for name, value in text_inputs().items()})


def _texts_at_the_right(model: nn.Module) -> Inputs:
    """The same padded on the left: XLNet answers at the last position, padding or not."""
    inputs = _texts(model)
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    return {
        name: torch.stack([row.roll(len(row) - length) for row, length in zip(value, lengths, strict=True)])
        for name, value in inputs.items()
    }


def _long_texts(model: nn.Module) -> Inputs:
    """Texts of one length: BigBird goes over from blocks to whole maps for good at a short one."""
    return {name: value[:1] for name, value in text_inputs().items()}


def _pictures(model: nn.Module) -> Inputs:
    return image_inputs()


def _streams(name: str) -> Architecture:
    build, inputs = STREAM_FAMILIES[name]
    kind = STREAM_KINDS[name]
    target: Target = 1 if kind in ("detects objects", "encoder-decoder", "sound") else "predicted"
    return Architecture(kind, build, lambda _: inputs(), target)


def _vlm(name: str) -> Architecture:
    pictures = (1, 1) if name == "InstructBLIP" else (1, 2)  # which reads an instruction with each picture
    vlm = TINY_VLMS[name]
    return Architecture(
        "writes about pictures",
        vlm.build,
        lambda _: vlm.inputs(pictures, (6, 3)),
        3,
        lambda inputs, example: vlm.alone(inputs, example, pictures),
    )


STREAM_KINDS = {
    "clip": "compares pictures and texts",
    "siglip": "compares pictures and texts",
    "lxmert": "reads pictures and texts",
    "visual-bert": "reads pictures and texts",
    "vilt": "reads pictures and texts",
    "blip": "reads pictures and texts",
    "owlvit": "detects objects named in words",
    "owlv2": "detects objects named in words",
    "detr": "detects objects",
    "conditional detr": "detects objects",
    "deformable detr": "detects objects",
    "t5": "encoder-decoder",
    "bart": "encoder-decoder",
    "marian": "encoder-decoder",
    "whisper": "sound",
}


def _more() -> dict[str, Architecture]:
    """Those that stand in the table alone."""
    texts = {
        name: Architecture("text encoder", build, _texts_at_the_right if name == "XLNet" else _texts)
        for name, build in more.TEXT_ENCODERS.items()
    }
    builds = {name: build for name, build in (more.DECODERS | HYBRIDS).items() if name not in DECODERS | OTHERS}
    decoders = {name: Architecture("decoder", build, _texts) for name, build in builds.items()}
    translators = {
        name: Architecture("encoder-decoder", partial(built, model, config, **sizes), lambda _: to_translate())
        for name, (model, config, sizes) in more.TRANSLATORS.items()
    }
    pictures = {
        name: Architecture("image encoder", build, _large_pictures if name in more.LARGE else _pictures)
        for name, build in more.IMAGE_ENCODERS.items()
    }
    videos = {name: Architecture("video encoder", build, _videos) for name, build in more.VIDEO.items()}
    detectors = {
        name: Architecture("detects objects", build, lambda _: photos()) for name, build in more.DETECTORS.items()
    }
    towers = {
        name: Architecture("compares pictures and texts", build, lambda _: _captions(), "predicted")
        for name, build in more.TOWERS.items()
    }
    segmenters = {
        name: Architecture(
            "segments pictures",
            build,
            {"SAM": _prompted, "EoMT": _pictures}.get(name, _large_pictures),
            Pixel(0.5, 0.5),
        )
        for name, build in more.SEGMENTERS.items()
    }
    return texts | decoders | translators | pictures | videos | detectors | segmenters | towers


def _large_pictures(model: nn.Module) -> Inputs:
    return {"pixel_values": noise(2, 3, 64, 64)}


def _prompted(model: nn.Module) -> Inputs:
    return _large_pictures(model) | {"input_points": torch.tensor([[[[20.0, 40.0]]], [[[50.0, 9.0]]]])}


def _videos(model: nn.Module) -> Inputs:
    return {"pixel_values": noise(2, 4, 3, 32, 32)}


def _waves(model: nn.Module) -> Inputs:
    return {"input_values": noise(2, 2640)}


def _spectrograms(model: nn.Module) -> Inputs:
    return {"input_values": noise(2, 120, 16)}


def _captions() -> Inputs:
    return captioned(input_ids=up_to_the_end(masked(9, 6)), attention_mask=masked(9, 6))


READS_PADDING = {
    "MobileBERT": "it embeds each word with its neighbours",
    "ConvBERT": "its convolutions reach over the end of a text",
    "FNet": "its Fourier transform goes over the whole batch's length",
    "MPT": "its biases by position count from the end of the longest text",
    "ProphetNet": "its decoder answers differently with padding behind what is written",
}

_ALL: dict[str, Architecture] = {
    **{name: Architecture("text encoder", build, _texts) for name, build in TEXT_FAMILIES.items()},
    **{
        name: Architecture("text encoder", build, _long_texts if name == "BigBird in blocks" else _texts)
        for name, build in OTHERS.items()
        if name not in HYBRIDS
    },
    **{name: Architecture("decoder", build, _texts) for name, build in DECODERS.items()},
    "Mamba": Architecture("decoder", OTHERS["Mamba"], _texts),
    **{name: Architecture("image encoder", build, _pictures) for name, build in IMAGE_FAMILIES.items()},
    **{name: Architecture("windows and pyramids", build, _pictures) for name, build in WINDOWED.items()},
    **{name: _streams(name) for name in STREAM_FAMILIES if name in STREAM_KINDS},
    **{f"{name} with pictures" if name in DECODERS else name: _vlm(name) for name in TINY_VLMS},
    **{name: Architecture("sound", build, _waves) for name, build in WAVE_FAMILIES.items() if " " not in name},
    "audio spectrogram transformer": Architecture("sound", ast, _spectrograms),
    **_more(),
}
ARCHITECTURES = {name: replace(row, reads_padding=READS_PADDING.get(name, "")) for name, row in _ALL.items()}
