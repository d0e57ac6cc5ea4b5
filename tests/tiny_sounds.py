"""Small random models that hear, with the extractors and tokenizers that belong to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import transformers
from torch import nn

from tiny_models import TRANSLATOR, built
from whyformer import Sound
from whyformer.models.loading import LoadedModel

RATE = 16_000
LAYERS = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
NOISES = {0: "bell", 1: "dog", 2: "rain"}
# Two convolutions: 400 samples are heard at once, the next token begins 320 samples later, as in Wav2Vec2.
WAVES = LAYERS | {
    "vocab_size": 8,
    "pad_token_id": 0,
    "conv_dim": [16, 16],
    "conv_kernel": [80, 17],
    "conv_stride": [20, 16],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 12,
}
MASKED = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}  # trained with an attention mask
PATCHES = {"patch_size": 8, "frequency_stride": 4, "time_stride": 4, "max_length": 120, "num_mel_bins": 16}
CHARACTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C"]
MARKERS = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"]
SPOKEN = [*MARKERS, *"abcdefghij", "Ġa", "Ġb", "Ġc", "Ġ", "ab", "cd"]


def tone(seconds: float, *, loud: tuple[float, float] = (0.0, 60.0), pitch: float = 440.0, seed: int = 0) -> Sound:
    """A tone with a little noise, which is heard between two moments alone."""
    times = np.arange(round(seconds * RATE)) / RATE
    noise = np.random.default_rng(seed).standard_normal(len(times)) * 0.2
    heard = (loud[0] <= times) & (times < loud[1])
    return Sound(((np.sin(2 * np.pi * pitch * times) + noise) * heard * 0.4).astype(np.float32), RATE)


def wave_model(name: str, config: str, **extra: Any) -> Callable[[], nn.Module]:
    return lambda: built(name, config, **WAVES | {"id2label": NOISES} | extra)


def ast() -> nn.Module:
    return built("ASTForAudioClassification", "ASTConfig", **LAYERS | PATCHES | {"id2label": NOISES})


def ctc() -> nn.Module:
    return built("Wav2Vec2ForCTC", "Wav2Vec2Config", **WAVES)


def whisper() -> nn.Module:
    sizes = {"num_mel_bins": 8, "max_source_positions": 100, "max_target_positions": 12, "vocab_size": len(SPOKEN)}
    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
    quiet = {"suppress_tokens": None, "begin_suppress_tokens": None}
    model = built("WhisperForConditionalGeneration", "WhisperConfig", **TRANSLATOR | sizes | ends | quiet)
    model.generation_config.no_timestamps_token_id = 2
    model.generation_config.suppress_tokens = [1, 2]
    return model


WAVE_FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "wav2vec2": wave_model("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config"),
    "wav2vec2 with a mask": wave_model("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", **MASKED),
    "wav2vec2 all layers": wave_model(
        "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", use_weighted_layer_sum=True
    ),
    "hubert": wave_model("HubertForSequenceClassification", "HubertConfig"),
    "wavlm": wave_model("WavLMForSequenceClassification", "WavLMConfig", num_buckets=8, max_bucket_distance=16),
    "sew": wave_model("SEWForSequenceClassification", "SEWConfig", squeeze_factor=2),
}


def extractor(**settings: Any) -> Any:
    return transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE, **settings)


def loaded_wave(family: str = "wav2vec2") -> LoadedModel:
    is_masked = "mask" in family
    return LoadedModel(WAVE_FAMILIES[family](), extractor(return_attention_mask=is_masked), family)


def loaded_ast() -> LoadedModel:
    bins = {"num_mel_bins": PATCHES["num_mel_bins"], "max_length": PATCHES["max_length"]}
    return LoadedModel(ast(), transformers.ASTFeatureExtractor(sampling_rate=RATE, **bins), "ast")


def loaded_ctc(folder: Any) -> LoadedModel:
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(CHARACTERS)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"))
    return LoadedModel(ctc(), transformers.Wav2Vec2Processor(extractor(), tokenizer), "ctc")


def loaded_whisper() -> LoadedModel:
    listener = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=2)
    words = {name: index for index, name in enumerate(SPOKEN)}
    special = {f"{kind}_token": SPOKEN[0] for kind in ("unk", "bos", "eos", "pad")}
    merges = [("Ġ", "a"), ("Ġ", "b"), ("Ġ", "c"), ("a", "b"), ("c", "d")]
    tokenizer = transformers.WhisperTokenizerFast(vocab=words, merges=merges, **special)
    return LoadedModel(whisper(), transformers.WhisperProcessor(listener, tokenizer), "whisper")
