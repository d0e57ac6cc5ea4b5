"""What the tests say in the words of transformers 5, in those of transformers 4; in 5 all of this does nothing."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path

import transformers

TOKENIZERS = ("BertTokenizerFast", "CLIPTokenizerFast", "DistilBertTokenizerFast", "WhisperTokenizerFast")
MAJOR = int(transformers.__version__.partition(".")[0])


# Weights as modules of 5 call them, and as those of 4 do: of ViT, then of DETR.
WEIGHTS = {
    r"\blayers\.(\d+)\.attention\.([qkv])_proj": lambda m: f"encoder.layer.{m[1]}.attention.attention.{QKV[m[2]]}",
    r"\blayers\.(\d+)\.attention\.o_proj": r"encoder.layer.\1.attention.output.dense",
    r"^((?:vit\.)?)layers\.(\d+)\.mlp\.fc1": r"\1encoder.layer.\2.intermediate.dense",
    r"^((?:vit\.)?)layers\.(\d+)\.mlp\.fc2": r"\1encoder.layer.\2.output.dense",
    r"^((?:vit\.)?)layers\.(\d+)\.layernorm": r"\1encoder.layer.\2.layernorm",
    r"_attn\.o_proj": "_attn.out_proj",
    r"(coder\.layers\.\d+)\.mlp\.": r"\1.",
}
QKV = {"q": "query", "k": "key", "v": "value"}


def weight_name(name: str) -> str:
    """What a module calls a weight."""
    for pattern, replacement in WEIGHTS.items() if MAJOR < 5 else ():
        name = re.sub(pattern, replacement, name)
    return name


def settings_of(settings: dict) -> dict:
    """The settings of a config: a backbone of one's own is no pretrained one, and a rotation has two parts."""
    if MAJOR >= 5:
        return settings
    settings = dict(settings)
    if settings.get("backbone_config") is not None:
        settings |= {"backbone": None, "use_pretrained_backbone": False}
    rotation = settings.pop("rope_parameters", None)
    if rotation is not None:
        settings |= {"rope_theta": rotation["rope_theta"]}
        settings |= {"rope_scaling": {key: value for key, value in rotation.items() if key != "rope_theta"}}
    return {key: settings_of(value) if isinstance(value, dict) else value for key, value in settings.items()}


@functools.cache
def from_words(kind: type) -> type:
    """A tokenizer class that takes its words as a dict, as in transformers 5, and writes the file that 4 reads."""

    class FromWords(kind):  # type: ignore[misc]
        def __init__(self, *args, vocab=None, merges=None, **settings):
            if vocab is not None:
                folder = Path(tempfile.mkdtemp())
                if merges is None:
                    settings["vocab_file"] = str(folder / "vocab.txt")
                    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.get)), encoding="utf-8")
                else:
                    settings |= {"vocab_file": str(folder / "vocab.json"), "merges_file": str(folder / "merges.txt")}
                    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
                    lines = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
                    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]), encoding="utf-8")
            super().__init__(*args, **settings)

    FromWords.__name__ = FromWords.__qualname__ = kind.__name__
    return FromWords


def with_names_of_five(getter):
    """What finds the names of a lazy module of transformers 4, with those of 5 too."""

    def find(self, name):
        value = getter(self, name.removesuffix("Pil") if name.endswith("ImageProcessorPil") else name)
        if self.__name__ == "transformers" and name in TOKENIZERS:
            value = from_words(value)
            setattr(self, name, value)
        return value

    return find


if MAJOR < 5:  # for all lazy modules: 4 makes that of transformers anew on the way
    type(transformers).__getattr__ = with_names_of_five(type(transformers).__getattr__)
    for name in TOKENIZERS:
        vars(transformers).pop(name, None)
