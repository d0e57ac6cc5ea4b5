"""Names of transformers 5 that the tests use, made of what transformers 4 has; importing this does nothing in 5."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import transformers

MAJOR = int(transformers.__version__.partition(".")[0])
PROCESSORS = ("Blip", "CLIP", "Idefics3", "LlavaNext", "Siglip", "ViT", "Vilt")


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


if MAJOR < 5:
    for name in PROCESSORS:
        setattr(transformers, f"{name}ImageProcessorPil", getattr(transformers, f"{name}ImageProcessor"))
    for name in ("BertTokenizerFast", "DistilBertTokenizerFast", "WhisperTokenizerFast"):
        setattr(transformers, name, from_words(getattr(transformers, name)))
