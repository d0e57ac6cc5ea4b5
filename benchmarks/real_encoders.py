"""Encoders of sentences and pictures from packages: safetensors, and ONNX graphs whose output is compared."""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from PIL import Image
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, Dinov2Config, Dinov2Model

from real_packages import join, read

sys.path.append(str(Path(__file__).parents[1] / "training"))
from convert_teacher import CONFIG, in_memory_name, published_weights
from dinov2 import PROCESSOR

PLACE = "package/dist/Xenova"
TEXTS = ("Hens lay eggs.", "The weather in Bergen was wet again, and nobody was surprised by that.")
TOLERANCE = 1e-5
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
MEAN = {"word_embedding_dimension": 384, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
VISION_PREFIX = "/backbone/"


def onnx_folder(archive: Path, name: str, folder: Path) -> None:
    """A BERT of which ONNX keeps linear weights without names: the node that multiplies by one says whose it is."""
    graph = onnx.load_from_string(read(archive, f"{PLACE}/{name}/onnx/model.onnx")).graph
    config = BertConfig(**json.loads(read(archive, f"{PLACE}/{name}/config.json")))
    model = BertModel(config, add_pooling_layer=False)
    weights = _named_weights(graph)
    known = {key: value for key, value in weights.items() if key in model.state_dict()}
    model.load_state_dict(known)  # strict
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / file).write_bytes(read(archive, f"{PLACE}/{name}/{file}"))
    _write_modules(folder)


def _named_weights(graph: onnx.GraphProto) -> dict[str, Tensor]:
    constants = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
    weights = dict(constants)
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            path = node.name.removeprefix("/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{path}.weight"] = constants[node.input[1]].T.contiguous()
    return weights


def _write_modules(folder: Path) -> None:
    """The files by which sentence-transformers knows the mean of the states to be the embedding."""
    (folder / "modules.json").write_text(json.dumps(MODULES, indent=1) + "\n")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(MEAN, indent=1) + "\n")


def files_folder(archive: Path, place: str, files: Sequence[str], folder: Path) -> None:
    """A model that the package has in Hugging Face layout."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(read(archive, f"{place}/{file}"))


def zip_folder(parts: Sequence[tuple[Path, str]], files: Sequence[str], folder: Path) -> None:
    """A model in a zip file that was cut into parts; the files are known by how their names end."""
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as place,
        zipfile.ZipFile(join(parts, Path(place) / "zip")) as archive,
    ):
        for file in files:
            name = min((one for one in archive.namelist() if one.endswith(f"/{file}")), key=len)
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(archive.read(name))


def complete_check(folder: Path) -> dict[str, Any]:
    """Every weight of the model is in its file."""
    model, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not [*report["missing_keys"], *report["mismatched_keys"]], report
    return {"check": "weights missing", "value": 0, "of": len(model.state_dict())}


def text_check(folder: Path, archive: Path, name: str) -> dict[str, Any]:
    """The states of two sentences are those that the ONNX graph gives."""
    inputs = AutoTokenizer.from_pretrained(folder)(list(TEXTS), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    graph = ReferenceEvaluator(onnx.load_from_string(read(archive, f"{PLACE}/{name}/onnx/model.onnx")))
    names = [one for one in graph.input_names if one in inputs]
    (expected,) = graph.run(["last_hidden_state"], {one: inputs[one].numpy() for one in names})
    real = inputs["attention_mask"].bool().numpy()
    return _difference(states.numpy()[real], expected[real])


def _difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """The largest difference as a share of the largest entry, on which rounding in float32 depends."""
    difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    assert difference < TOLERANCE, difference
    check = "largest difference from the ONNX graph's output, as a share of its largest entry"
    return {"check": check, "value": difference, "allowed": TOLERANCE}


def dinov2_folder(archive: Path, name: str, folder: Path) -> None:
    """The backbone of a saliency detector: it may have been fine-tuned."""
    model = Dinov2Model(Dinov2Config(**CONFIG, layer_norm_eps=1e-6))
    weights = published_weights(read(archive, name))
    model.load_state_dict({in_memory_name(key): value for key, value in weights.items()})  # strict
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")


def picture_check(folder: Path, archive: Path, name: str) -> dict[str, Any]:
    """The states of a picture are those of the same node of the ONNX graph."""
    graph = onnx.load_from_string(read(archive, name))
    node = f"{VISION_PREFIX}layernorm/Add_1_output_0"
    del graph.graph.output[:]
    graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(node))
    pixels = _picture()
    (expected,) = ReferenceEvaluator(graph).run([node], {graph.graph.input[0].name: pixels})
    with torch.no_grad():
        model = Dinov2Model.from_pretrained(folder).double().eval()  # the graph's rounding alone is left
        states = model(torch.from_numpy(pixels).double()).last_hidden_state
    return _difference(states.numpy(), expected)


def _picture() -> np.ndarray:
    """A smooth picture with an edge, as the model takes it."""
    across, down = np.meshgrid(np.linspace(0, 1, 224), np.linspace(0, 1, 224))
    picture = np.stack([across, down, (across > 0.5).astype(float)], axis=-1)
    image = np.asarray(Image.fromarray((255 * picture).astype(np.uint8)), dtype=np.float32) / 255
    normalised = (image - PROCESSOR["image_mean"]) / PROCESSOR["image_std"]
    return normalised.transpose(2, 0, 1)[None].astype(np.float32)
