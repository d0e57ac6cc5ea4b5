"""Which tokens of an image tower each feature of a picture depends on, by the model's own gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tiny_vlms import IMAGE_TOKEN

# The block of the tower after which features are made.
FEATURE_BLOCKS = {
    "LLaVA": "vision_tower.encoder.layers.1",
    "PaliGemma": "vision_tower.encoder.layers.2",
    "Gemma 3": "vision_tower.encoder.layers.2",
    "InternVL": "vision_tower.encoder.layer.2",
    "Idefics 3": "vision_model.encoder.layers.2",
    "SmolVLM": "vision_model.encoder.layers.2",
    "Qwen2-VL": "visual.blocks.1",
    "Qwen2.5-VL": "visual.blocks.2",
    "Qwen3-VL": "visual.blocks.2",
    "LLaVA-NeXT": "vision_tower.encoder.layers.1",
    "LLaVA-OneVision": "vision_tower.encoder.layers.2",
}


def dependences(model: nn.Module, inputs: dict[str, Tensor], block: str) -> list[set[int]]:
    """For each feature that is put at a placeholder the tower's tokens, through all maps, that it depends on."""
    kept: dict[str, Tensor] = {}

    def tower(module, args, output):
        whole = output[0] if isinstance(output, tuple) else output
        kept["tower"] = whole.detach().requires_grad_()
        return (kept["tower"], *output[1:]) if isinstance(output, tuple) else kept["tower"]

    def decoder(module, args, kwargs):
        kept["embeddings"] = kwargs["inputs_embeds"]

    module = next(part for name, part in model.named_modules() if name.endswith(block))
    language = next(p for name, p in model.named_modules() if name.endswith(("language_model", "text_model")))
    # Before those of transformers, which keep hidden states once they were asked for.
    hooks = [
        module.register_forward_hook(tower, prepend=True),
        language.register_forward_pre_hook(decoder, with_kwargs=True),
    ]
    model(**inputs)
    for hook in hooks:
        hook.remove()
    features = kept["embeddings"][inputs["input_ids"] == IMAGE_TOKEN]
    weights = torch.randn(features.shape[1], generator=torch.Generator().manual_seed(0)).to(features)
    found = []
    for feature in features @ weights:
        (gradient,) = torch.autograd.grad(feature, kept["tower"], retain_graph=True, allow_unused=True)
        rows = gradient.reshape(-1, gradient.shape[-1]).abs().sum(dim=1)
        found.append(set(rows.nonzero().flatten().tolist()))
    return found
