"""What the package must know of an architecture that its forward pass does not show: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from whyformer.axes import Inputs
from whyformer.models.joined import Operation, Place, Transfer
from whyformer.models.pictures import (
    Sight,
    packed_pictures,
    pooled_pictures,
    queried_pictures,
    shuffled_pictures,
    tiled_pictures,
    whole_pictures,
)
from whyformer.models.vision_language import arrange_pictures
from whyformer.models.windows import mask_units, pyramid, shifted_windows

NOTHING = ""  # scales nothing: the stream is no input, such as a detector's object queries
JOINT = "joint"  # a stream of words and patches, which are inputs of their own

Readout = str | Callable[[nn.Module], str] | None
Arrange = Callable[[nn.Module, Inputs, Sequence[Operation]], Iterable[Place | Transfer]]


@dataclass(frozen=True)
class Stream:
    """A sequence of tokens inside a model.

    Args:
        name: What it is called in scores: "text", "image", "source", "target", "audio", "queries".
        readout: Where the answer is read in it, by the kinds of `readout.KINDS`; None is found from the gradient.
        scaled: The module of the base model whose output the path of integrated gradients scales; None for the pixels
            themselves, NOTHING for a stream that is no input.
        is_read: Whether the answer is read in it.
        mask: The input that says which of its tokens are real; None where padding shows in the attention alone.

    Example:
        >>> whyformer.Stream("image", scaled="encoder.visn_fc", mask="visual_attention_mask").name
        'image'
    """

    name: str
    readout: Readout = None
    scaled: str | None = None
    is_read: bool = False
    mask: str | None = None


@dataclass(frozen=True)
class Family:
    """What the package must know of an architecture that its forward pass does not show.

    Args:
        stream: The stream the answer is read from, with its `readout`, `scaled` and `mask` as in `Stream`.
        others: The other streams.
        attention: For a part of an attention's path (* is anything between), the streams of its queries and of its
            keys; the first row that fits counts. Rows for the same part are taken in turn, and are one step: they read
            the same state.
        pads_to_limit: Whether every text is padded to the model's limit, without a mask (SigLIP reads its last
            position, padding or not).
        arrange: For streams that are cut up or joined, such as windows or merged patches: the place of each attention
            operation, in the order they ran, and between them what makes one stream of another; None where map b is
            that of example b, and query i that of token i.
        sight: For a decoder with pictures among its words: which patches its placeholder tokens stand for.

    Example:
        >>> whyformer.FAMILIES["my_bert"] = whyformer.Family("text", readout="first", scaled="embeddings")
        >>> del whyformer.FAMILIES["my_bert"]
    """

    stream: str
    readout: Readout = None
    scaled: str | None = None
    others: tuple[Stream, ...] = ()
    attention: tuple[tuple[str, str, str], ...] = ()
    mask: str | None = "attention_mask"
    pads_to_limit: bool = False
    arrange: Arrange | None = None
    sight: Sight | None = None

    @property
    def is_one_stack(self) -> bool:
        """Whether it is one stream whose tokens keep their places."""
        return not self.attention and self.arrange is None

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All its streams, the one that is read from first."""
        return Stream(self.stream, self.readout, self.scaled, is_read=True, mask=self.mask), *self.others


def _pooling(attribute: str, mean: Any) -> Callable[[nn.Module], str]:
    return lambda model: "mean" if getattr(model.config, attribute) == mean else "first"


def _class_tokens(model: nn.Module) -> str:
    return "both class tokens" if type(model).__name__.endswith("WithTeacher") else "first"


def image_encoder(readout: Readout) -> Family:
    return Family("image", readout, mask=None)


def _encoder_decoder(source: str, cross: str, embeddings: str = "embed_tokens") -> Family:
    return Family(
        "target",
        scaled=f"decoder.{embeddings}",
        mask="decoder_attention_mask",
        others=(
            Stream(source, scaled=f"encoder.{embeddings}", mask="attention_mask")
            if source == "source"
            else Stream(source),
        ),
        attention=((cross, "target", source), ("decoder", "target", "target"), ("encoder", source, source)),
    )


def _with_pictures(sight: Sight, *others: Stream) -> Family:
    """A decoder with pictures among its words."""
    return Family(
        "text",
        scaled="embed_tokens",
        others=(Stream("image"), *others),
        arrange=arrange_pictures(sight),
        sight=sight,
    )


def _clip_with(embeddings: str) -> Family:
    text = Stream("text", scaled=embeddings, is_read=True, mask="attention_mask")
    return Family("image", mask=None, others=(text,), attention=_TOWERS)


_WINDOWS = Family("image", mask=None, arrange=shifted_windows)
_PYRAMID = Family("image", mask=None, arrange=pyramid)
_CLASS_TOKEN_TEXT = Family("text", "first", "embeddings")
_CLASS_TOKEN_IMAGE = image_encoder("first")
_TOWERS = (("vision_model", "image", "image"), ("text_model", "text", "text"))
_TEXT_TOWER = Stream("text", scaled="text_model.embeddings.token_embedding", is_read=True, mask="attention_mask")
_DETECTOR = Family(
    "queries",
    scaled=NOTHING,
    mask=None,
    others=(Stream("image"),),
    attention=(
        ("encoder_attn", "queries", "image"),
        ("decoder", "queries", "queries"),
        ("encoder", "image", "image"),
    ),
)
# What its encoder attends to is mixed by convolutions before the queries read it, and followed no further.
_FEATURE_DETECTOR = replace(
    _DETECTOR,
    attention=(
        ("encoder_attn", "queries", "image"),
        ("decoder", "queries", "queries"),
        ("encoder", "features", "features"),
    ),
)

_CLIP = _clip_with("text_model.embeddings.token_embedding")
_SIGLIP = Family(
    "pool",
    scaled=NOTHING,
    mask=None,
    others=(Stream("image"), _TEXT_TOWER),
    attention=(("vision_model.head", "pool", "image"), *_TOWERS),
    pads_to_limit=True,
)

_LIKE_BART = ("bart", "marian", "mbart", "m2m_100", "pegasus", "blenderbot", "blenderbot-small", "plbart", "mvp")
_SOUND_ENCODER = Family("audio", "mean", mask=None)

FAMILIES: dict[str, Family] = {
    "albert": _CLASS_TOKEN_TEXT,
    "bert": _CLASS_TOKEN_TEXT,
    "camembert": _CLASS_TOKEN_TEXT,
    "deberta-v2": _CLASS_TOKEN_TEXT,
    "distilbert": _CLASS_TOKEN_TEXT,
    "electra": _CLASS_TOKEN_TEXT,
    "modernbert": Family("text", _pooling("classifier_pooling", "mean"), "embeddings"),
    "roberta": _CLASS_TOKEN_TEXT,
    "xlm-roberta": _CLASS_TOKEN_TEXT,
    "beit": image_encoder(_pooling("use_mean_pooling", True)),
    "deit": image_encoder(_class_tokens),
    "dinov2": image_encoder("first+mean"),
    "dinov2_with_registers": image_encoder("first+mean"),
    "vit": _CLASS_TOKEN_IMAGE,
    "vit_msn": _CLASS_TOKEN_IMAGE,
    "blip": Family(
        "text",
        scaled="text_encoder.embeddings",
        others=(Stream("image"),),
        attention=(("crossattention", "text", "image"), ("text_encoder", "text", "text"), _TOWERS[0]),
    ),
    "BlipForQuestionAnswering": Family(
        "target",
        scaled="text_decoder.bert.embeddings",
        mask="decoder_attention_mask",
        others=(Stream("text", scaled="text_encoder.embeddings", mask="attention_mask"), Stream("image")),
        attention=(
            ("text_decoder.*.crossattention", "target", "text"),
            ("text_decoder", "target", "target"),
            ("crossattention", "text", "image"),
            ("text_encoder", "text", "text"),
            _TOWERS[0],
        ),
    ),
    "clip": _CLIP,
    "metaclip_2": _CLIP,
    "chinese_clip": _clip_with("text_model.embeddings"),
    "altclip": _clip_with("text_model.roberta.embeddings"),
    "owlvit": _CLIP,
    "owlv2": _CLIP,
    "siglip": _SIGLIP,
    "siglip2": _SIGLIP,
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "donut-swin": _WINDOWS,
    "segformer": _PYRAMID,
    "pvt": _PYRAMID,
    "pvt_v2": _PYRAMID,
    "glpn": _PYRAMID,
    "hiera": Family("image", mask=None, arrange=mask_units),
    # Its boxes are read in a stream of their own, which has the same maps and never comes back to the words.
    "lilt": Family(
        "text",
        "first",
        scaled="embeddings",
        others=(Stream("layout", scaled=NOTHING, mask="attention_mask"),),
        attention=(("layout_output", "layout", "layout"), ("encoder.layer.", "text", "text")),
    ),
    "lxmert": Family(
        "text",
        scaled="embeddings",
        others=(Stream("image", scaled="encoder.visn_fc", mask="visual_attention_mask"),),
        attention=(
            ("visual_attention", "text", "image"),
            ("visual_attention", "image", "text"),
            ("lang_self_att", "text", "text"),
            ("visn_self_att", "image", "image"),
            ("r_layers", "image", "image"),
            ("encoder.layer.", "text", "text"),
        ),
    ),
    "perceiver": Family(
        "queries",
        scaled=NOTHING,
        mask=None,
        others=(
            Stream("latents", scaled=NOTHING),
            Stream("text", scaled="input_preprocessor", mask="attention_mask"),
        ),
        attention=(
            ("decoder", "queries", "latents"),
            ("encoder.cross_attention", "latents", "text"),
            ("encoder.self_attends", "latents", "latents"),
        ),
    ),
    "llava": _with_pictures(whole_pictures),
    "paligemma": _with_pictures(whole_pictures),
    "gemma3": _with_pictures(pooled_pictures),
    "internvl": _with_pictures(shuffled_pictures),
    "idefics3": _with_pictures(shuffled_pictures),
    "smolvlm": _with_pictures(shuffled_pictures),
    "qwen2_vl": _with_pictures(packed_pictures),
    "qwen2_5_vl": _with_pictures(packed_pictures),
    "qwen3_vl": _with_pictures(packed_pictures),
    "llava_next": _with_pictures(tiled_pictures),
    "llava_onevision": _with_pictures(tiled_pictures),
    "blip-2": _with_pictures(queried_pictures, Stream("queries", scaled=NOTHING)),
    "instructblip": _with_pictures(queried_pictures, Stream("queries", scaled=NOTHING)),
    "vilt": Family(
        JOINT,
        scaled=NOTHING,
        mask=None,
        others=(Stream("text", scaled="embeddings.text_embeddings", mask="attention_mask"), Stream("image")),
    ),
    "detr": _DETECTOR,
    "conditional_detr": _DETECTOR,
    "deformable_detr": _DETECTOR,
    "rt_detr": _FEATURE_DETECTOR,
    "table-transformer": _DETECTOR,
    **dict.fromkeys(_LIKE_BART, _encoder_decoder("source", "encoder_attn")),
    **dict.fromkeys(("t5", "mt5", "umt5", "switch_transformers"), _encoder_decoder("source", "EncDecAttention")),
    "nllb-moe": _encoder_decoder("source", "cross_attention"),
    "whisper": _encoder_decoder("audio", "encoder_attn"),
    "audio-spectrogram-transformer": Family("audio", "both class tokens", mask=None),
    "data2vec-audio": _SOUND_ENCODER,
    "hubert": _SOUND_ENCODER,
    "sew": _SOUND_ENCODER,
    "unispeech": _SOUND_ENCODER,
    "unispeech-sat": _SOUND_ENCODER,
    "wav2vec2": _SOUND_ENCODER,
    "wavlm": _SOUND_ENCODER,
}


STOCK = dict(FAMILIES)  # as they are, whatever rows a user puts among them

ROW_TO_WRITE = (
    "Write its row: whyformer.FAMILIES[model.config.model_type] = "
    'whyformer.Family(stream="text", readout="first", scaled="path.of.a.module").'
)
