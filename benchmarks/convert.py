"""Published checkpoints as folders that whyformer loads: safetensors, config.json and processor.

python benchmarks/convert.py mae mae_finetuned_vit_base.pth --out DATA/vit-mae
python benchmarks/convert.py moco linear-vit-b-300ep.pth.tar --out DATA/vit-moco
python benchmarks/convert.py dino dino_vitbase16_pretrain.pth --head dino_vitbase16_linearweights.pth --out DATA/dino
python benchmarks/convert.py hub openai/clip-vit-base-patch32 --out DATA/clip
python benchmarks/convert.py hub uclanlp/visualbert-vqa --processor bert-base-uncased --answers answers.json --out …
python benchmarks/convert.py prompts google/vit-base-patch16-224 --out DATA/prompts.json

Checkpoints are read as tensors alone: no code that a pickle holds is ever run.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.models.loading import quiet

Weights = dict[str, Tensor]
HEAD_WIDTH = 64  # of every ViT that was published in timm's layout
COLOURS = {"imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "half": ((0.5,) * 3, (0.5,) * 3)}
BILINEAR = 2
FOUND_IN = ("model", "state_dict", "teacher")  # under which a checkpoint keeps its weights


@dataclass(frozen=True)
class Layout:
    """Where a transformers class keeps what timm's ViT calls otherwise: regular expressions of keys, in order."""

    architecture: str
    names: dict[str, str]
    settings: dict[str, Any]


def _names(base: str, layer: str, norms: tuple[str, str], **others: str) -> dict[str, str]:
    return {
        r"(cls_token)": rf"{base}.embeddings.\1",
        r"pos_embed": f"{base}.embeddings.position_embeddings",
        r"patch_embed\.proj\.(.*)": rf"{base}.embeddings.patch_embeddings.projection.\1",
        r"blocks\.(\d+)\.attn\.([qkv])\.(.*)": rf"{base}.{layer}.\1.attention.\2_proj.\3",
        r"blocks\.(\d+)\.attn\.proj\.(.*)": rf"{base}.{layer}.\1.attention.o_proj.\2",
        r"blocks\.(\d+)\.norm1\.(.*)": rf"{base}.{layer}.\1.{norms[0]}.\2",
        r"blocks\.(\d+)\.norm2\.(.*)": rf"{base}.{layer}.\1.{norms[1]}.\2",
        r"blocks\.(\d+)\.(mlp\.fc[12]\..*)": rf"{base}.{layer}.\1.\2",
        r"head\.(.*)": r"classifier.\1",
        **{old: rf"{base}.{new}" for old, new in others.items()},
    }


_VIT_NORMS = ("layernorm_before", "layernorm_after")
LAYOUTS = {
    # The mean of the patches, then a norm, then the head. A key's bias adds the same to all scores of a query: BEiT has
    # none, and the softmax does not see it.
    "mae": Layout(
        "Beit",
        _names("beit", "layers", _VIT_NORMS, **{r"fc_norm\.(.*)": r"pooler.layernorm.\1"}),
        {
            "use_mean_pooling": True,
            "use_absolute_position_embeddings": True,
            "use_relative_position_bias": False,
            "use_mask_token": False,
            "layer_scale_init_value": 0.0,
        },
    ),
    "moco": Layout("ViT", _names("vit", "layers", _VIT_NORMS, **{r"norm\.(.*)": r"layernorm.\1"}), {}),
    # DINO's linear head reads [class token; mean of the patches] after the last norm, as DINOv2's does in transformers.
    "dino": Layout(
        "Dinov2",
        _names("dinov2", "encoder.layer", ("norm1", "norm2"), **{r"norm\.(.*)": r"layernorm.\1"}),
        {"layerscale_value": 1.0, "use_mask_token": False},
    ),
}


def checkpoint(path: Path) -> Weights:
    """The weights in a checkpoint, without the prefixes of what it was trained in."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # settings some authors keep beside the weights
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WhyformerError(f"{str(path)!r} holds more than tensors, and its code is not run: {error}") from error
    for name in FOUND_IN:
        found = found.get(name, found)
    return {re.sub(r"^(module\.)?(backbone\.|linear\.|base_encoder\.)?", "", name): w for name, w in found.items()}


def renamed(weights: Weights, layout: Layout) -> Weights:
    """The weights under their names in transformers, queries, keys and values apart."""
    apart: Weights = {}
    for name, weight in weights.items():
        if ".attn.qkv." in name:
            for part, third in zip("qkv", weight.chunk(3), strict=True):
                apart[name.replace("qkv", part)] = third.clone()
        else:
            apart[name] = weight
    found: Weights = {}
    for name, weight in apart.items():
        new = next((re.sub(f"^{old}$", to, name) for old, to in layout.names.items() if re.fullmatch(old, name)), None)
        if new is None:
            raise WhyformerError(f"The checkpoint has {name!r}, which a {layout.architecture} of this kind has not.")
        found[new] = weight
    return found


def vision_model(kind: str, weights: Weights, heads: int | None = None) -> transformers.PreTrainedModel:
    """The model that holds a checkpoint in timm's layout."""
    layout = LAYOUTS[kind]
    try:
        labels, _ = weights["head.weight"].shape
        width, _, patch, _ = weights["patch_embed.proj.weight"].shape
        side = round((weights["pos_embed"].shape[1] - 1) ** 0.5) * patch
        inner, _ = weights["blocks.0.mlp.fc1.weight"].shape
    except (KeyError, ValueError) as error:
        raise WhyformerError(f"The checkpoint is no ViT with a head in timm's layout: {error} is missing.") from error
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": len({name.split(".")[1] for name in weights if name.startswith("blocks.")}),
        "num_attention_heads": heads or width // HEAD_WIDTH,
        "intermediate_size": inner,
        "mlp_ratio": inner // width,
        "patch_size": patch,
        "image_size": side,
        "layer_norm_eps": 1e-6,
    }
    config_class = getattr(transformers, f"{layout.architecture}Config")
    model_class = getattr(transformers, f"{layout.architecture}ForImageClassification")
    known = {name: size for name, size in sizes.items() if hasattr(config_class(), name)}
    model = model_class._from_config(config_class(num_labels=labels, **known, **layout.settings)).eval()
    left = model.load_state_dict(renamed(weights, layout), strict=False)
    unseen = [name for name in left.unexpected_keys if not name.endswith("k_proj.bias")]
    missing = [name for name in left.missing_keys if not name.endswith("lambda1")]  # DINO does not scale its layers
    if unseen or missing:
        raise WhyformerError(f"Weights that do not fit: {', '.join(unseen + missing)}.")
    return model


def vision_processor(side: int, colours: str) -> Any:
    """Resized to a square without a crop, as the papers' scripts do it."""
    mean, std = COLOURS[colours]
    size = {"height": side, "width": side}
    return transformers.ViTImageProcessorPil(size=size, resample=BILINEAR, image_mean=mean, image_std=std)


def converted_checkpoint(options: argparse.Namespace) -> None:
    weights = checkpoint(options.checkpoint)
    if options.kind == "dino":
        weights |= {f"head.{name}": weight for name, weight in checkpoint(options.head).items()}
    model = vision_model(options.kind, weights, options.heads)
    model.save_pretrained(options.out)
    vision_processor(model.config.image_size, options.colours).save_pretrained(options.out)


def converted_from_hub(options: argparse.Namespace) -> None:
    """A model of the hub, whose weights may be a pickle there, read as tensors alone; with its answers by name."""
    place = {"revision": options.revision, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(options.model, **place)
    if options.answers:
        answers = json.loads(options.answers.read_text(encoding="utf-8"))
        config.id2label = {number: str(answer) for number, answer in enumerate(answers)}
        config.label2id = {answer: number for number, answer in config.id2label.items()}
    model_class = getattr(transformers, config.architectures[0])
    model, found = model_class.from_pretrained(
        options.model, config=config, weights_only=True, output_loading_info=True, **place
    )
    if found["missing_keys"]:  # transformers would make them up
        raise WhyformerError(f"{options.model!r} has no weights for {', '.join(sorted(found['missing_keys']))}.")
    model.save_pretrained(options.out)
    processor = options.processor or options.model
    own = place if processor == options.model else {}
    transformers.AutoProcessor.from_pretrained(processor, **own).save_pretrained(options.out)


def written_prompts(options: argparse.Namespace) -> None:
    """A text for each class of a classifier, by its number."""
    config = transformers.AutoConfig.from_pretrained(options.model)
    names = {str(number): name.split(", ") for number, name in sorted(config.id2label.items())}
    shown: Callable[[list[str]], str] = (lambda name: str(tuple(name))) if options.tuples else (lambda name: name[0])
    texts = {number: f"a photo of a {shown(name)}" for number, name in names.items()}
    options.out.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in LAYOUTS:
        one = kinds.add_parser(kind)
        one.add_argument("checkpoint", type=Path)
        if kind == "dino":
            one.add_argument("--head", type=Path, required=True, help="the linear head's checkpoint")
        one.add_argument("--heads", type=int, help=f"attention heads; the width / {HEAD_WIDTH} if left out")
        one.add_argument("--colours", choices=COLOURS, default="imagenet", help="what pictures are normalised by")
        one.set_defaults(do=converted_checkpoint)
    hub = kinds.add_parser("hub")
    hub.add_argument("model")
    hub.add_argument("--revision", default="main")
    hub.add_argument("--processor", help="where its tokenizer or processor is, if elsewhere")
    hub.add_argument("--answers", type=Path, help="JSON: a list of what its labels mean")
    hub.set_defaults(do=converted_from_hub)
    prompts = kinds.add_parser("prompts")
    prompts.add_argument("model", help="a classifier, whose labels are put into 'a photo of a …'")
    prompts.add_argument("--tuples", action="store_true", help="all synonyms, as Python shows a tuple")
    prompts.set_defaults(do=written_prompts)
    for one in kinds.choices.values():
        one.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    try:
        with quiet():
            options.do(options)
    except (WhyformerError, OSError) as error:  # also a file that is not there
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
