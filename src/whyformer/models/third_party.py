"""Models of timm and open_clip by name: `timm:vit_base_patch16_224`, `open_clip:ViT-B-16/laion2b_s34b_b88k`.

The suffix `?random` gives a model random weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import transformers
from safetensors.torch import load_file
from tokenizers import Regex, normalizers
from torch import Tensor, nn

from whyformer.errors import WhyformerError, nearest
from whyformer.extras import extra
from whyformer.models.compat import pil_processor

TIMM, OPEN_CLIP, RANDOM = "timm:", "open_clip:", "?random"
THIRD_PARTY = (TIMM, OPEN_CLIP)
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
PROBE = "A photo of 2 red_cats, don't you see them!"  # shows whether two tokenizers agree

_CLEAN: tuple[Any, ...] = (
    normalizers.Replace("_", " "),
    normalizers.Replace(Regex(r"[!-/:-@\[-`{-~]"), ""),
    normalizers.Lowercase(),
    normalizers.Replace(Regex(r"\s+"), " "),
    normalizers.Strip(),
)


@dataclass(frozen=True)
class OwnConfig:
    """A minimal configuration: model type, labels, and text length."""

    model_type: str
    id2label: dict[int, str] = field(default_factory=dict)
    text_config: Any = None


@dataclass(frozen=True)
class OwnProcessor:
    """A processor with an image processor and a tokenizer."""

    image_processor: Any
    tokenizer: Any


@dataclass(frozen=True)
class DualEncoderOutput:
    """Output of a dual encoder, with the field names of transformers."""

    image_embeds: Tensor
    text_embeds: Tensor
    logits_per_image: Tensor


class TimmClassifier(nn.Module):
    """A timm model with transformers' input names."""

    def __init__(self, model: nn.Module, labels: dict[int, str]):
        super().__init__()
        self.model, self.config = model, OwnConfig("timm", labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values)
        return logits


class OpenClipModel(nn.Module):
    """An open_clip dual encoder with transformers' input names.

    It ignores the mask, since texts are padded to one length; the mask only marks their real tokens.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        pools = any(name.rpartition(".")[2] in ("attn_pool", "attnpool") for name, _ in model.visual.named_modules())
        length = SimpleNamespace(max_position_embeddings=model.context_length)
        self.config = OwnConfig("open_clip, pooled" if pools else "open_clip", text_config=length)

    @property
    def logit_scale(self) -> Tensor:
        """Logarithm of the factor applied to cosines."""
        scale: Tensor = self.model.logit_scale
        return scale

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None
    ) -> DualEncoderOutput:
        image = self.model.encode_image(pixel_values, normalize=True)
        text = self.model.encode_text(input_ids, normalize=True)
        logits = self.logit_scale.exp() * image @ text.T
        bias = self.model.logit_bias
        return DualEncoderOutput(image, text, logits if bias is None else logits + bias)


def load_third_party(name: str) -> tuple[nn.Module, Any]:
    """Load a timm or open_clip model by name, with its processor."""
    model, processor = load_timm(name) if name.startswith(TIMM) else load_open_clip(name)
    return model.eval(), processor


def load_timm(name: str) -> tuple[nn.Module, Any]:
    """Load a timm classifier by name, with its image processor."""
    timm = extra("timm", "timm")
    architecture = name.removeprefix(TIMM).removesuffix(RANDOM)
    if not timm.is_model(architecture):
        raise WhyformerError(f"timm has no model {architecture!r}. {nearest(architecture, timm.list_models())}")
    with _loading("timm", name):
        model = timm.create_model(architecture, pretrained=False)  # pretrained=True may read a pickle
        if not name.endswith(RANDOM):
            _load_safetensors(model, architecture)
    return TimmClassifier(model, _labels(timm, model)), _timm_processor(timm.data.resolve_model_data_config(model))


def _load_safetensors(model: nn.Module, architecture: str) -> None:
    """Load a model's weights from the safetensors file of the hub repository that timm names."""
    place = (getattr(model, "pretrained_cfg", None) or {}).get("hf_hub_id")
    if not place:
        raise WhyformerError(f"timm has no weights for {architecture!r}: {TIMM}{architecture}{RANDOM} has random ones.")
    model.load_state_dict(load_file(huggingface_hub.hf_hub_download(place, "model.safetensors")))


def load_open_clip(name: str) -> tuple[nn.Module, Any]:
    """Load an open_clip dual encoder by name, with the named checkpoint or its first one."""
    open_clip = extra("open_clip", "open_clip")
    architecture, _, tag = name.removeprefix(OPEN_CLIP).removesuffix(RANDOM).partition("/")
    if architecture not in open_clip.list_models():
        hint = nearest(architecture, open_clip.list_models())
        raise WhyformerError(f"open_clip has no model {architecture!r}. {hint}")
    is_random = name.endswith(RANDOM)
    chosen = None if is_random else _checkpoint(open_clip, architecture, tag)
    with _loading("open_clip", name):
        model = open_clip.create_model(architecture, pretrained=chosen, pretrained_text=not is_random)
        tokenizer = open_clip.get_tokenizer(architecture)
    processor = OwnProcessor(
        _open_clip_pixels(open_clip.get_model_preprocess_cfg(model), name),
        _word_pieces(tokenizer, model.context_length, name),
    )
    return OpenClipModel(model), processor


@contextmanager
def _loading(library: str, name: str) -> Iterator[None]:
    """Report network failures and missing checkpoints in one line."""
    try:
        yield
    except WhyformerError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        prefix, _, architecture = name.removesuffix(RANDOM).partition(":")
        way_out = f"{prefix}:{architecture.partition('/')[0]}{RANDOM} has random weights."
        if name.endswith(RANDOM):
            way_out = "it needs files that are not on this machine."
        raise WhyformerError(f"{library} cannot load {architecture!r} ({reason}): {way_out}") from error


def _checkpoint(open_clip: Any, architecture: str, tag: str) -> str:
    """The named checkpoint, or open_clip's first; it must be safetensors, since pickles are never read."""
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if not tags or (tag and tag not in tags):
        known = f"it has {', '.join(tags)}" if tags else f"{OPEN_CLIP}{architecture}{RANDOM} has random weights"
        raise WhyformerError(f"open_clip has no checkpoint {tag!r} of {architecture!r}: {known}.")
    chosen: str = tag or tags[0]
    with _loading("open_clip", f"{OPEN_CLIP}{architecture}/{chosen}"):
        file = str(open_clip.download_pretrained(open_clip.get_pretrained_cfg(architecture, chosen)))
    if not file.endswith(".safetensors"):
        others = ", ".join(other for other in tags if other != chosen)
        way_out = f"choose another of its checkpoints: {others}" if others else "it has no other checkpoint"
        raise WhyformerError(f"The checkpoint {chosen!r} of {architecture!r} is a pickle: {way_out}.")
    return chosen


def _word_pieces(tokenizer: Any, length: int, name: str) -> Any:
    """The tokenizer as a transformers one: its own, or CLIP's with its vocabulary and merges."""
    own = getattr(tokenizer, "tokenizer", None)
    if own is None:
        start, end = (tokenizer.decoder[index] for index in tokenizer.all_special_ids[:2])
        own = transformers.CLIPTokenizer(
            vocab=dict(tokenizer.encoder),
            merges=sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.get),
            **{"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end},
        )
        own.pad_token_id = 0  # also a word's id, so it cannot be set as a special token
    elif tokenizer.clean_fn("A,") == "a":  # SigLIP's: removes capitals and punctuation
        before = own.backend_tokenizer.normalizer
        own.backend_tokenizer.normalizer = normalizers.Sequence([*_CLEAN, *([before] if before else [])])
    own.model_max_length = length
    ids = own(PROBE)["input_ids"]
    if [*ids, *[own.pad_token_id] * (length - len(ids))] != tokenizer([PROBE])[0].tolist():
        raise WhyformerError(f"The tokenizer of {name!r} does more than look up its vocabulary: choose another model.")
    return own


def _labels(timm: Any, model: Any) -> dict[int, str]:
    """The checkpoint's label names, or those of its ImageNet variant."""
    own = (getattr(model, "pretrained_cfg", None) or {}).get("label_names")
    if own:
        return dict(enumerate(map(str, own)))
    subset = timm.data.infer_imagenet_subset(model)
    if subset is None:
        return {}
    names = timm.data.ImageNetInfo(subset)
    return {index: names.index_to_description(index).split(",")[0] for index in range(names.num_classes())}


def _timm_processor(settings: dict[str, Any]) -> Any:
    """timm's evaluation transforms: resize the shortest side, centre crop, normalise."""
    _, height, width = settings["input_size"]
    share = settings.get("crop_pct") or 1.0
    resize = {"shortest_edge": math.floor(min(height, width) / share)}
    if settings.get("crop_mode") == "squash" or height != width:
        resize = {"height": math.floor(height / share), "width": math.floor(width / share)}
    return _pixels(settings, resize, (height, width))


def _open_clip_pixels(settings: dict[str, Any], name: str) -> Any:
    """open_clip's transforms: resize the shortest side and centre crop, or squash the whole picture."""
    size = settings["size"]
    height, width = (size, size) if isinstance(size, int) else size
    mode = settings.get("resize_mode", "shortest")
    if mode == "longest":
        raise WhyformerError(f"{name!r} pads its pictures to a frame, which is not supported: choose another model.")
    is_squashed = mode == "squash" or height != width
    resize = {"height": height, "width": width} if is_squashed else {"shortest_edge": height}
    return _pixels(settings, resize, (height, width))


def _pixels(settings: dict[str, Any], resize: dict[str, int], crop: tuple[int, int]) -> Any:
    return pil_processor("CLIP")(
        size=resize,
        crop_size={"height": crop[0], "width": crop[1]},
        image_mean=list(settings["mean"]),
        image_std=list(settings["std"]),
        resample=RESAMPLE.get(settings.get("interpolation", "bicubic"), RESAMPLE["bicubic"]),
    )
