"""Names of transformers 5 that the tests use, made of what transformers 4 has; importing this does nothing in 5."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import transformers

MAJOR = int(transformers.__version__.partition(".")[0])


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


class WithPil(type(transformers)):  # type: ignore[misc]
    """transformers 4 with 5's names of the image processors that need no torchvision, which in 4 all are."""

    def __getattr__(self, name):
        return super().__getattr__(name.removesuffix("Pil") if name.endswith("ImageProcessorPil") else name)


if MAJOR < 5:
    transformers.__class__ = WithPil
    for name in ("BertTokenizerFast", "DistilBertTokenizerFast", "WhisperTokenizerFast"):
        setattr(transformers, name, from_words(getattr(transformers, name)))
