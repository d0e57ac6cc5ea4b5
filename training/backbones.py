"""The hidden states and [CLS] attention of a stock ViT, BEiT, DINOv2 or CLIP, block by block, by fused attention."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BeitForImageClassification, CLIPModel, Dinov2Model, ViTForImageClassification


class BackboneOutput(NamedTuple):
    tokens: list[Tensor]  # after each block: batch, token, channel; the last one after the final norm
    cls_attention: dict[int, Tensor]  # block (from 1) to its [CLS] attention: batch, head, key


class Block(nn.Module):
    """A pre-norm block that shares its parts with the stock block."""

    def __init__(self, block: nn.Module, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_before = submodule(block, "layernorm_before", "norm1", "layer_norm1")
        self.query, self.key = submodule(block, "q_proj", "query"), submodule(block, "k_proj", "key")
        self.value = submodule(block, "v_proj", "value")
        self.output = submodule(block, "o_proj", "out_proj", "dense", within=("attention", "self_attn"))
        self.norm_after = submodule(block, "layernorm_after", "norm2", "layer_norm2")
        self.mlp = block.mlp
        self.scale_attention = getattr(block, "layer_scale1", nn.Identity())
        self.scale_mlp = getattr(block, "layer_scale2", nn.Identity())

    def forward(self, tokens: Tensor, *, with_cls_attention: bool) -> tuple[Tensor, Tensor | None]:
        normed = self.norm_before(tokens)
        query, key, value = (
            project(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        context = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal).transpose(1, 2).flatten(2)
        tokens = tokens + self.scale_attention(self.output(context))
        tokens = tokens + self.scale_mlp(self.mlp(self.norm_after(tokens)))
        return tokens, cls_attention(query, key) if with_cls_attention else None


class Backbone(nn.Module):
    """A stock model's embeddings, blocks and final norm; it shares the model's parameters."""

    def __init__(
        self,
        embeddings: nn.Module,
        blocks: nn.ModuleList,
        final_norm: nn.Module,
        heads: int,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(Block(block, heads, causal=causal) for block in blocks)
        self.final_norm = final_norm

    def forward(self, inputs: Tensor, *, cls_attention_of: tuple[int, ...] = ()) -> BackboneOutput:
        """The tokens after every block, and the [CLS] attention of the blocks with these numbers."""
        return self.encode(self.embeddings(inputs), cls_attention_of=cls_attention_of)

    def encode(self, tokens: Tensor, *, cls_attention_of: tuple[int, ...] = ()) -> BackboneOutput:
        """The same from embedded tokens, which may be a subset of a picture's."""
        states, attention = [], {}
        for number, block in enumerate(self.blocks, start=1):
            tokens, row = block(tokens, with_cls_attention=number in cls_attention_of)
            states.append(tokens)
            if row is not None:
                attention[number] = row
        states[-1] = self.final_norm(states[-1])
        return BackboneOutput(states, attention)


def cls_attention(query: Tensor, key: Tensor) -> Tensor:
    """The attention of [CLS] alone: the fused kernel returns none."""
    scores = (query[:, :, :1] @ key.transpose(2, 3)).squeeze(2).float()
    return (scores * query.shape[-1] ** -0.5).softmax(dim=-1)


def vit_backbone(model: ViTForImageClassification) -> Backbone:
    vit = model.vit
    blocks = vit.layers if hasattr(vit, "layers") else vit.encoder.layer
    return Backbone(vit.embeddings, blocks, vit.layernorm, model.config.num_attention_heads)


def beit_backbone(model: BeitForImageClassification) -> Backbone:
    """Of a BEiT without layer scale and relative positions; its last tokens are not normed, their mean is."""
    return Backbone(model.beit.embeddings, model.beit.layers, model.beit.layernorm, model.config.num_attention_heads)


def dinov2_backbone(model: Dinov2Model) -> Backbone:
    return Backbone(model.embeddings, model.encoder.layer, model.layernorm, model.config.num_attention_heads)


def clip_backbones(model: CLIPModel) -> tuple[Backbone, Backbone]:
    """Of the images, whose [CLS] is normed last, and of the texts."""
    vision, text = model.vision_model, model.text_model
    embeddings = nn.Sequential(vision.embeddings, vision.pre_layrnorm)
    heads = vision.config.num_attention_heads, text.config.num_attention_heads
    return (
        Backbone(embeddings, vision.encoder.layers, vision.post_layernorm, heads[0]),
        Backbone(text.embeddings, text.encoder.layers, text.final_layer_norm, heads[1], causal=True),
    )


def submodule(block: nn.Module, *names: str, within: str | tuple[str, ...] = "") -> nn.Module:
    """The submodule with one of these names: releases of transformers 5 call the projections differently."""
    for path, module in block.named_modules():
        if path.rpartition(".")[2] in names and path.startswith(within):
            return module
    raise ValueError(
        f"{type(block).__name__} has none of {', '.join(names)}. It has: {[p for p, _ in block.named_modules()]}."
    )
