"""Model folders as on the Hugging Face hub: written in half precision, read back for the evaluation."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch


def save_model(model: Any, folder: Path, processors: Iterable[Any] = ()) -> None:
    """A Hugging Face folder: float16 on disk, loaded as float32, with the processors' files beside the weights."""
    for processor in processors:
        processor.save_pretrained(folder)
    tied = model.all_tied_weights_keys  # copies to float16 would be stored twice
    weights = {
        name: value.detach().half().cpu().contiguous() for name, value in model.state_dict().items() if name not in tied
    }
    model.save_pretrained(folder, state_dict=weights)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"  # absent, transformers 5 would take the file's own float16
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_model(model_class: Any, options: argparse.Namespace, **settings: Any) -> Any:
    """The saved model of this run, loaded as a user would load it, for the evaluation: float32, no TF32."""
    torch.set_float32_matmul_precision("highest")
    folder = options.out / "model"
    model = model_class.from_pretrained(folder, **settings).to(options.device).eval()
    if model.dtype != torch.float32:
        raise TypeError(f"{folder} loads as {model.dtype}, not float32: set dtype in its config.json.")
    return model
