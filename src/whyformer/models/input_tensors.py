"""Input tensors of models: their kind, their padding mask and their channel axis.

To add a kind of input, add a row here and one for its architecture in `families`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class InputTensor:
    """A kind of input. `stream` names the scores of the input itself, and `channels` is the axis they are summed over.

    It is None where every value has its own score.
    """

    stream: str
    mask: str | None = None
    channels: int | None = -1


_WORDS = InputTensor("text", "attention_mask")
_REGIONS = InputTensor("image", "visual_attention_mask")
_SAMPLES = InputTensor("samples", "attention_mask", channels=None)
_SPECTROGRAM = InputTensor("spectrogram", channels=None)

INPUT_TENSORS: dict[str, InputTensor] = {
    "pixel_values": InputTensor("pixels", "pixel_mask", channels=-3),
    "input_ids": _WORDS,
    "inputs_embeds": _WORDS,
    "input_features": InputTensor("frames", channels=1),
    "input_values": _SAMPLES,
    "decoder_input_ids": InputTensor("target", "decoder_attention_mask"),
    "visual_feats": _REGIONS,
    "visual_embeds": _REGIONS,
}

# Inputs with an entry per word piece, or per region.
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Inputs with an entry per picture, or per patch of all pictures.
PICTURE_INPUTS = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_sizes", "batch_num_images")
REGION_INPUTS = ("visual_feats", "visual_pos", "visual_embeds", "visual_attention_mask", "visual_token_type_ids")

# Sound inputs: samples or a spectrogram under one name, and a spectrogram whose frequencies are channels.
SOUND_INPUTS = ("input_values", "input_features")

_CHANNELS = {modality.stream: modality.channels for modality in (*INPUT_TENSORS.values(), _SPECTROGRAM)}
INPUT_STREAMS = frozenset(_CHANNELS)


def channel_axis(stream: str) -> int | None:
    """The channel axis of an input: before the rows and columns of pixels, the second of frames, none for samples."""
    return _CHANNELS.get(stream, -1)


def input_stream(name: str, values: Tensor, tokens: str) -> str:
    """Stream name of scores of the input itself: pixels, parts of a sound, or `tokens` if it is already the stream."""
    if name == "input_values":
        return (_SAMPLES if values.dim() == 2 else _SPECTROGRAM).stream
    if values.dim() in (4, 5):  # [example, channel, row, column], or with frames before the channels
        return "pixels"
    return INPUT_TENSORS[name].stream if name in INPUT_TENSORS and INPUT_TENSORS[name].channels == 1 else tokens
