"""One row per architecture with the facts that its forward pass does not show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.family import JOINT, NOTHING, Family, Readout, Stream
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.pictures import (
    ImageTokenLayout,
    packed_pictures,
    pooled_pictures,
    queried_pictures,
    shuffled_pictures,
    tiled_pictures,
    whole_pictures,
)
from whyformer.models.queries import gated_detector, late_queries, masked_queries, prompted_masks
from whyformer.models.structure import base_model, main_input, walk
from whyformer.models.videos import divided_space_time, pooled_by_query
from whyformer.models.vision_language import arrange_pictures
from whyformer.models.windows import mask_units, pyramid, shifted_windows, shrinking, unfolded


def _pooling(attribute: str, mean: Any) -> Callable[[nn.Module], str]:
    return lambda model: "mean" if getattr(model.config, attribute) == mean else "first"


def _class_tokens(model: nn.Module) -> str:
    return "both class tokens" if type(model).__name__.endswith("WithTeacher") else "first"


def _image_encoder(readout: Readout) -> Family:
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


def _with_pictures(sight: ImageTokenLayout, *others: Stream) -> Family:
    """A decoder whose text contains images."""
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


_MASKED_QUERIES = Family("queries", scaled=NOTHING, mask=None, others=(Stream("image"),), arrange=masked_queries)
# A mask combines its token with the patches' states, so it is read from both.
_SAM = replace(_MASKED_QUERIES, others=(Stream("image", is_read=True),), arrange=prompted_masks)
_WINDOWS = Family("image", mask=None, arrange=shifted_windows)
_PYRAMID = Family("image", mask=None, arrange=pyramid)
_CLASS_TOKEN_TEXT = Family("text", "first", "embeddings")
_CLASS_TOKEN_IMAGE = _image_encoder("first")
_TOWERS = (("vision_model", "image", "image"), ("text_model", "text", "text"))
_TEXT_TOWER = Stream("text", scaled="text_model.embeddings.token_embedding", is_read=True)
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
# Convolutions mix the encoder's tokens before the queries read them; scores stop there.
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
_OPEN_TEXT = Stream("text", scaled="token_embedding", is_read=True, mask="attention_mask")
_OPEN_TOWERS = (("visual.", "image", "image"), ("transformer", "text", "text"))
_OPEN_CLIP_POOLED = replace(
    _SIGLIP,
    others=(Stream("image"), replace(_OPEN_TEXT, mask=None)),
    attention=(("attn_pool", "pool", "image"), ("attnpool", "pool", "image"), *_OPEN_TOWERS),
)

_LIKE_BART = ("bart", "marian", "mbart", "m2m_100", "pegasus", "blenderbot", "blenderbot-small", "plbart", "mvp")
_SOUND_ENCODER = Family("audio", "mean", mask=None)
_VIDEO_ENCODER = Family("image", mask=None, modality="video")

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
    "beit": _image_encoder(_pooling("use_mean_pooling", True)),
    "deit": _image_encoder(_class_tokens),
    "dinov2": _image_encoder("first+mean"),
    "dinov2_with_registers": _image_encoder("first+mean"),
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
    "open_clip": Family("image", mask=None, others=(_OPEN_TEXT,), attention=_OPEN_TOWERS, pads_to_limit=True),
    "open_clip, pooled": _OPEN_CLIP_POOLED,
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "donut-swin": _WINDOWS,
    "segformer": _PYRAMID,
    "pvt": _PYRAMID,
    "pvt_v2": _PYRAMID,
    "glpn": _PYRAMID,
    "cvt": _PYRAMID,
    "hiera": Family("image", mask=None, arrange=mask_units),
    # Its boxes are read in a separate stream, which uses the same maps and never returns to the words.
    "lilt": Family(
        "text",
        "first",
        scaled="embeddings",
        others=(Stream("layout", scaled=NOTHING, mask="attention_mask"),),
        attention=(("layout_output", "layout", "layout"), ("encoder.layer.", "text", "text")),
    ),
    "levit": Family("image", mask=None, arrange=shrinking),
    "mobilevit": Family("image", mask=None, arrange=unfolded),
    "eomt": Family("image", mask=None, arrange=late_queries),
    "eomt_dinov3": Family("image", mask=None, arrange=late_queries),
    "timesformer": Family("image", mask=None, arrange=divided_space_time, modality="video"),
    "videomae": _VIDEO_ENCODER,
    "vivit": _VIDEO_ENCODER,
    "vjepa2": Family(
        "pool",
        scaled=NOTHING,
        mask=None,
        others=(Stream("image"),),
        arrange=pooled_by_query,
        modality="video",
        processor=("VideoMAEImageProcessor", "video_preprocessor_config.json"),
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
    "rt_detr_v2": _FEATURE_DETECTOR,
    "d_fine": replace(_DETECTOR, attention=(), arrange=gated_detector),
    "dab-detr": replace(_DETECTOR, attention=(("cross_attn", "queries", "image"), *_DETECTOR.attention[1:])),
    "table-transformer": _DETECTOR,
    "maskformer": _MASKED_QUERIES,
    "mask2former": _MASKED_QUERIES,
    "sam": _SAM,
    "sam_hq": _SAM,
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


_STOCK = dict(FAMILIES)
_STOCK_HEADS = (
    *("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher"),
    "ForAudioClassification",
)

_ROW = "Write its row: whyformer.extend.FAMILIES[model.config.model_type] = whyformer.extend.Family"
ROW_TO_WRITE = f'{_ROW}(stream="text", readout="first", scaled="path.of.a.module").'
ROW_OF_STREAMS = f'{_ROW}("target", others=(…), attention=(…)); docs/concepts/streams.md shows one.'


def family_of(model: nn.Module, inputs: Inputs) -> Family:
    """The model's row. Models outside the table get a default: one stream, its read-out found from the gradient.

    The table's rows apply to stock heads only, since another head on the same encoder may read elsewhere. Rows with
    several or rearranged streams leave that to the gradient, and apply to every model that has all of the streams.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    kind = type(model).__name__ if type(model).__name__ in FAMILIES else kind  # a class may have its own row
    row = FAMILIES.get(kind)
    is_stock = type(model).__module__.startswith("transformers.") and type(model).__name__.endswith(_STOCK_HEADS)
    is_one_stream = row is not None and row.is_one_stack and not row.others
    if row is not None and (row is not _STOCK.get(kind) or (is_stock if is_one_stream else _has_all(model, row))):
        return row
    name, _ = main_input(inputs)
    if name == "input_ids":
        return _by_structure(base_model(model))
    return Family("audio", mask=None) if name in SOUND_INPUTS else _image_encoder(None)


def _by_structure(model: nn.Module) -> Family:
    """Default row of a text model: one stream, or an encoder's and a decoder's."""
    parts = [getattr(model, name, None) for name in ("encoder", "decoder")]
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False) or None in parts:
        return Family("text", None, _embedding_path(model))
    source, target = (f"{name}.{_embedding_path(getattr(model, name))}" for name in ("encoder", "decoder"))
    row = _encoder_decoder("source", NOTHING)
    return replace(row, scaled=target, others=(replace(row.others[0], scaled=source),))


def scaled_module(model: nn.Module, path: str) -> nn.Module:
    """The module of the base model whose output the path scales."""
    try:
        return base_model(model).get_submodule(path)
    except AttributeError:  # a wrapper such as PEFT's nests it deeper
        places = walk(base_model(model)).places
    target = next((module for name, module in places if name.endswith(f".{path}")), None)
    if target is None:
        raise UnsupportedModel(f"{type(model).__name__} has no module {path!r} to scale. {ROW_TO_WRITE}")
    return target


def _has_all(model: nn.Module, row: Family) -> bool:
    """Whether the model has every module that the row scales: an image tower alone has no text."""
    names = [name for name, _ in walk(base_model(model)).places]
    paths = [stream.scaled for stream in row.streams if stream.scaled]
    return all(any(f".{name}".endswith(f".{path}") for name in names) for path in paths)


def _embedding_path(model: nn.Module) -> str:
    """Path of the embedding module, or else of the word-piece table."""
    modules = list(model.named_modules())
    whole: list[str] = [name for name, _ in modules if name.split(".")[-1] == "embeddings"]
    tables: list[str] = [name for name, module in modules if isinstance(module, nn.Embedding)]
    if not whole + tables:
        raise UnsupportedModel(f"{type(model).__name__} has no recognisable embedding module to scale. {ROW_TO_WRITE}")
    return min(whole, key=len) if whole else tables[0]
