"""Models of timm and open_clip by name: `timm:vit_base_patch16_224`, `open_clip:ViT-B-16/laion2b_s34b_b88k`.

With `?random` behind the name a model has random weights.
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
PROBE = "A photo of 2 red_cats, don't you see them!"  # tells whether two tokenizers do the same

_CLEAN: tuple[Any, ...] = (
    normalizers.Replace("_", " "),
    normalizers.Replace(Regex(r"[!-/:-@\[-`{-~]"), ""),
    normalizers.Lowercase(),
    normalizers.Replace(Regex(r"\s+"), " "),
    normalizers.Strip(),
)


@dataclass(frozen=True)
class OwnConfig:
    """A minimal configuration: the model type, its labels, and the length of a text."""

    model_type: str
    id2label: dict[int, str] = field(default_factory=dict)
    text_config: Any = None


@dataclass(frozen=True)
class OwnProcessor:
    """A processor of pictures into pixels and texts into word pieces."""

    image_processor: Any
    tokenizer: Any


@dataclass(frozen=True)
class DualEncoderOutput:
    """Output of a dual encoder, with the field names of transformers."""

    image_embeds: Tensor
    text_embeds: Tensor
    logits_per_image: Tensor


class TimmClassifier(nn.Module):
    """A model of timm that takes its pixels by name."""

    def __init__(self, model: nn.Module, labels: dict[int, str]):
        super().__init__()
        self.model, self.config = model, OwnConfig("timm", labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values)
        return logits


class OpenClipModel(nn.Module):
    """A dual encoder of open_clip that takes its pixels and word pieces by name.

    It takes no mask: texts are filled up to one length, and the mask says what of them is real to whoever asks.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        pools = any(name.rpartition(".")[2] in ("attn_pool", "attnpool") for name, _ in model.visual.named_modules())
        length = SimpleNamespace(max_position_embeddings=model.context_length)
        self.config = OwnConfig("open_clip, pooled" if pools else "open_clip", text_config=length)

    @property
    def logit_scale(self) -> Tensor:
        """The logarithm of what cosines are multiplied by."""
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
    """The model of that name in timm's or open_clip's list, and what makes examples into its inputs."""
    model, processor = load_timm(name) if name.startswith(TIMM) else load_open_clip(name)
    return model.eval(), processor


def load_timm(name: str) -> tuple[nn.Module, Any]:
    """The classifier of that name in timm's list, and what makes pictures into its pixels."""
    timm = extra("timm", "timm")
    architecture = name.removeprefix(TIMM).removesuffix(RANDOM)
    if not timm.is_model(architecture):
        raise WhyformerError(f"timm has no model {architecture!r}. {nearest(architecture, timm.list_models())}")
    with _loading("timm", name):
        model = timm.create_model(architecture, pretrained=False)  # with which timm may read a pickle
        if not name.endswith(RANDOM):
            _load_safetensors(model, architecture)
    return TimmClassifier(model, _labels(timm, model)), _timm_processor(timm.data.resolve_model_data_config(model))


def _load_safetensors(model: nn.Module, architecture: str) -> None:
    """Load the weights that timm names for a model, from the safetensors file of its repository on the hub."""
    place = (getattr(model, "pretrained_cfg", None) or {}).get("hf_hub_id")
    if not place:
        raise WhyformerError(
            f"timm names no weights for {architecture!r}: {TIMM}{architecture}{RANDOM} has random ones."
        )
    model.load_state_dict(load_file(huggingface_hub.hf_hub_download(place, "model.safetensors")))


def load_open_clip(name: str) -> tuple[nn.Module, Any]:
    """The dual encoder of that name in open_clip's list, with the checkpoint named behind it or the first it has."""
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
    """Report a network failure or missing checkpoint, which the library and the hub raise, in one line."""
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
    """The checkpoint of that name, or the first that open_clip lists: in safetensors, for no pickle is read."""
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if not tags or (tag and tag not in tags):
        known = f"it has {', '.join(tags)}" if tags else f"{OPEN_CLIP}{architecture}{RANDOM} has random weights"
        raise WhyformerError(f"open_clip has no checkpoint {tag!r} of {architecture!r}: {known}.")
    chosen: str = tag or tags[0]
    with _loading("open_clip", f"{OPEN_CLIP}{architecture}/{chosen}"):
        file = str(open_clip.download_pretrained(open_clip.get_pretrained_cfg(architecture, chosen)))
    if not file.endswith(".safetensors"):
        others = ", ".join(other for other in tags if other != chosen)
        way_out = f"take another of its checkpoints: {others}" if others else "it has no other checkpoint"
        raise WhyformerError(f"The checkpoint {chosen!r} of {architecture!r} is a pickle: {way_out}.")
    return chosen


def _word_pieces(tokenizer: Any, length: int, name: str) -> Any:
    """The tokenizer as one of transformers: its own where it has one, or CLIP's with its vocabulary and merges."""
    own = getattr(tokenizer, "tokenizer", None)
    if own is None:
        start, end = (tokenizer.decoder[index] for index in tokenizer.all_special_ids[:2])
        own = transformers.CLIPTokenizer(
            vocab=dict(tokenizer.encoder),
            merges=sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.get),
            **{"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end},
        )
        own.pad_token_id = 0  # a word's too, so that it cannot be named as a special token
    elif tokenizer.clean_fn("A,") == "a":  # SigLIP's: without capitals and punctuation
        before = own.backend_tokenizer.normalizer
        own.backend_tokenizer.normalizer = normalizers.Sequence([*_CLEAN, *([before] if before else [])])
    own.model_max_length = length
    ids = own(PROBE)["input_ids"]
    if [*ids, *[own.pad_token_id] * (length - len(ids))] != tokenizer([PROBE])[0].tolist():
        raise WhyformerError(f"The tokenizer of {name!r} does more than its vocabulary says: take another model.")
    return own


def _labels(timm: Any, model: Any) -> dict[int, str]:
    """The names of the labels: the checkpoint's own, or those of the ImageNet it was trained on."""
    own = (getattr(model, "pretrained_cfg", None) or {}).get("label_names")
    if own:
        return dict(enumerate(map(str, own)))
    subset = timm.data.infer_imagenet_subset(model)
    if subset is None:
        return {}
    names = timm.data.ImageNetInfo(subset)
    return {index: names.index_to_description(index).split(",")[0] for index in range(names.num_classes())}


def _timm_processor(settings: dict[str, Any]) -> Any:
    """timm's own steps before an evaluation: the shortest side, the middle, the colours."""
    _, height, width = settings["input_size"]
    share = settings.get("crop_pct") or 1.0
    resize = {"shortest_edge": math.floor(min(height, width) / share)}
    if settings.get("crop_mode") == "squash" or height != width:
        resize = {"height": math.floor(height / share), "width": math.floor(width / share)}
    return _pixels(settings, resize, (height, width))


def _open_clip_pixels(settings: dict[str, Any], name: str) -> Any:
    """open_clip's own steps: the shortest side and the middle, or the whole picture squashed."""
    size = settings["size"]
    height, width = (size, size) if isinstance(size, int) else size
    mode = settings.get("resize_mode", "shortest")
    if mode == "longest":
        raise WhyformerError(f"{name!r} puts a frame around its pictures, which is not drawn here: take another model.")
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
