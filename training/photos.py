"""Reads the photo archives (tars and index.csv) into uint8 tensors."""

import csv
import io
import os
import random
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

BACKGROUND, FOREGROUND, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class Photos:
    """One split. `masks[i]` belongs to photo `mask_owners[i]`: only cats and dogs of Oxford Pets have one."""

    images: Tensor  # uint8: photo, rgb, row, column
    labels: Tensor  # int64: photo
    names: tuple[str, ...]  # of the labels
    masks: Tensor  # uint8: mask, row, column
    mask_owners: Tensor  # int64: mask

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Photos":
        tensors = (self.images, self.labels, self.masks, self.mask_owners)
        images, labels, masks, mask_owners = (tensor.to(device) for tensor in tensors)
        return Photos(images, labels, self.names, masks, mask_owners)


def load_photos(folder: Path, split: str, *, with_masks: bool = False, limit: int | None = None) -> Photos:
    """The split's photos in a fixed shuffled order, at most `limit` of them."""
    with open(folder / "index.csv", newline="") as file:
        index = list(csv.DictReader(file))
    names = tuple(sorted({row["label"] for row in index}))
    rows = [row for row in index if row["split"] == split]
    if not rows:
        raise ValueError(
            f"{folder}/index.csv has no split {split!r}. It has: {sorted({row['split'] for row in index})}."
        )
    random.Random(0).shuffle(rows)
    rows = rows[:limit]
    with_mask = [i for i, row in enumerate(rows) if with_masks and row["mask"]]
    members = [(row["shard"], row["image"]) for row in rows] + [(rows[i]["shard"], rows[i]["mask"]) for i in with_mask]
    contents = _contents(folder, members)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter lock
        images = list(pool.map(_pixels, contents[: len(rows)], ["RGB"] * len(rows), chunksize=64))
        masks = list(pool.map(_pixels, contents[len(rows) :], ["L"] * len(with_mask), chunksize=64))
    return Photos(
        images=torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous(),
        labels=torch.tensor([names.index(row["label"]) for row in rows]),
        names=names,
        masks=torch.from_numpy(np.stack(masks)) if masks else torch.empty(0, *images[0].shape[:2], dtype=torch.uint8),
        mask_owners=torch.tensor(with_mask, dtype=torch.int64),
    )


def _contents(folder: Path, members: list[tuple[str, str]]) -> list[bytes]:
    """The bytes of these members (shard, name), each shard read once from front to back."""
    contents = dict.fromkeys(members, b"")
    missing = set(members)
    for shard in sorted({shard for shard, _ in members}):
        with tarfile.open(folder / shard) as tar:
            for member in tar:
                if (shard, member.name) in contents:
                    contents[shard, member.name] = tar.extractfile(member).read()
                    missing.discard((shard, member.name))
    if missing:
        raise ValueError(f"{len(missing)} members that index.csv names are not in the tars, such as {min(missing)}.")
    return [contents[member] for member in members]


def _pixels(content: bytes, mode: str) -> np.ndarray:
    """A picture decoded in a Pillow mode."""
    return np.asarray(Image.open(io.BytesIO(content)).convert(mode))
