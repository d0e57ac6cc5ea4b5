"""Small random vision-language models that write, of the stock classes, and the inputs each takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tiny_models import built
from whyformer.axes import Inputs

IMAGE_TOKEN, PAD = 5, 0
ENDS = {"pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2}
TEXT = ENDS | {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 160,
}
WIDE_HEADS = {"head_dim": 12}
VISION = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "image_size": 32,
    "patch_size": 8,
}
QWEN_VISION = {"in_channels": 3, "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2}
ROPE = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [1, 1, 2]}
QFORMER = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "cross_attention_frequency": 2,
    "encoder_hidden_size": 24,
    "max_position_embeddings": 40,
}
QWEN_TEXT = TEXT | {"rope_parameters": ROPE}
IDS = {"image_token_id": IMAGE_TOKEN}


@dataclass(frozen=True)
class TinyVLM:
    """How to build a model; how many placeholders a picture has; what the model is given of its pictures.

    `pixels` makes the inputs of the pictures of several prompts, each with so many.
    """

    build: Callable[[], nn.Module]
    placeholders: Callable[[int], int]
    pixels: Callable[[tuple[int, ...]], Inputs]
    extra: Callable[[Tensor], Inputs] = lambda ids: {}

    def inputs(
        self, pictures: tuple[int, ...] = (1, 1), words: tuple[int, ...] = (6, 3), *, left: bool = False
    ) -> Inputs:
        """A batch of prompts with so many pictures and words each, padded on the right or the left."""
        generator = torch.Generator().manual_seed(3)
        rows, count = [], 0
        for number, length in zip(pictures, words, strict=True):
            row = [1]
            for _ in range(number):
                row += [IMAGE_TOKEN] * self.placeholders(count) + [9]
                count += 1
            rows.append(row + torch.randint(10, 60, (length,), generator=generator).tolist())
        longest = max(map(len, rows))
        gaps = [longest - len(row) for row in rows]
        before = [(gap if left else 0, 0 if left else gap) for gap in gaps]
        ids = [[PAD] * start + row + [PAD] * end for row, (start, end) in zip(rows, before, strict=True)]
        real = [[0] * start + [1] * len(row) + [0] * end for row, (start, end) in zip(rows, before, strict=True)]
        batch = torch.tensor(ids)
        return {"input_ids": batch, "attention_mask": torch.tensor(real)} | self.pixels(pictures) | self.extra(batch)

    def alone(self, inputs: Inputs, example: int, pictures: tuple[int, ...]) -> Inputs:
        """One example of a batch without its padding; its pictures are those that stand in its prompt."""
        real = inputs["attention_mask"][example].bool()
        first, last = sum(pictures[:example]), sum(pictures[: example + 1])
        own: Inputs = {}
        for name, value in inputs.items():
            if value.shape == inputs["input_ids"].shape:
                own[name] = value[example : example + 1, real]
            elif name.startswith("qformer"):
                own[name] = value[example : example + 1]
            elif name == "pixel_values" and "image_grid_thw" in inputs:
                own[name] = torch.cat(value.split(inputs["image_grid_thw"].prod(dim=1).tolist())[first:last])
            elif name == "pixel_values" and value.dim() == 5 and "image_sizes" not in inputs:  # by prompt
                own[name] = value[example : example + 1, : pictures[example]]
            else:
                own[name] = value[first:last]
        return own


def noise(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def square(pictures: tuple[int, ...]) -> Inputs:
    count = sum(pictures)
    return {"pixel_values": noise(count, 3, 32, 32)}


SIZES = [(20, 60), (60, 24), (50, 50), (30, 60)]  # height, width of the pictures that are cut into tiles
PINPOINTS = [[32, 64], [64, 32], [64, 64]]
TILES = [3, 3, 5, 3]  # the whole picture, and its tiles
GRIDS = [(4, 6), (8, 4), (4, 4), (2, 4)]  # rows and columns of Qwen's patches


def tiles(pictures: tuple[int, ...]) -> Inputs:
    count = sum(pictures)
    values = noise(count, max(TILES[:count]), 3, 32, 32)
    for number in range(count):
        values[number, TILES[number] :] = 0
    return {"pixel_values": values, "image_sizes": torch.tensor(SIZES[:count])}


def packed(pictures: tuple[int, ...]) -> Inputs:
    count = sum(pictures)
    grids = torch.tensor([(1, *grid) for grid in GRIDS[:count]])
    return {"pixel_values": noise(int(grids.prod(dim=1).sum()), 3 * 2 * 4 * 4), "image_grid_thw": grids}


def merged(number: int) -> int:
    rows, columns = GRIDS[number]
    return rows * columns // 4


def tiled(number: int) -> int:
    """The whole picture's patches, and those of its tiles that are no padding, each row with a newline."""
    return 16 + [2 * (8 + 1), 8 * (4 + 1), 8 * (8 + 1), 4 * (8 + 1)][number]


def kinds(ids: Tensor) -> Inputs:
    return {"mm_token_type_ids": (ids == IMAGE_TOKEN).long()}


def text_config(name: str, **extra: Any) -> Any:
    return getattr(transformers, f"{name}Config")(**TEXT | extra)


def vision_config(name: str, **extra: Any) -> Any:
    return getattr(transformers, f"{name}Config")(**VISION | extra)


def llava(**extra: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        sizes: dict[str, Any] = {"vision_config": vision_config("CLIPVision"), "text_config": text_config("Llama")}
        return built("LlavaForConditionalGeneration", "LlavaConfig", **IDS, **sizes | extra)

    return build


def with_tiles(name: str, vision: str, text: str, **extra: Any) -> Callable[[], nn.Module]:
    return lambda: built(
        f"{name}ForConditionalGeneration",
        f"{name}Config",
        vision_config=vision_config(vision),
        text_config=text_config(text),
        image_grid_pinpoints=PINPOINTS,
        **IDS | extra,
    )


def qwen(name: str, **vision: Any) -> Callable[[], nn.Module]:
    return lambda: built(
        f"{name}ForConditionalGeneration",
        f"{name}Config",
        text_config=QWEN_TEXT | ({"head_dim": 8} if name == "Qwen3VL" else {}),
        vision_config=QWEN_VISION | vision,
        image_token_id=IMAGE_TOKEN,
        video_token_id=6,
        vision_start_token_id=7,
        vision_end_token_id=8,
    )


def gemma3() -> nn.Module:
    text = text_config(
        "Gemma3Text", **WIDE_HEADS, layer_types=["sliding_attention", "full_attention"], sliding_window=12
    )
    return built(
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        text_config=text,
        vision_config=vision_config("SiglipVision"),
        mm_tokens_per_image=4,
        image_token_index=IMAGE_TOKEN,
        image_token_id=IMAGE_TOKEN,
        boi_token_index=7,
        eoi_token_index=8,
    )


def paligemma() -> nn.Module:
    return built(
        "PaliGemmaForConditionalGeneration",
        "PaliGemmaConfig",
        text_config=text_config("Gemma", **WIDE_HEADS),
        vision_config=vision_config("SiglipVision", projection_dim=32),
        projection_dim=32,
        **IDS,
    )


def shuffled(name: str) -> Callable[[], nn.Module]:
    return lambda: built(
        f"{name}ForConditionalGeneration",
        f"{name}Config",
        text_config=text_config("Llama"),
        vision_config=VISION,
        scale_factor=2,
        **IDS,
    )


def internvl() -> nn.Module:
    return built(
        "InternVLForConditionalGeneration",
        "InternVLConfig",
        text_config=text_config("Qwen2"),
        vision_config=transformers.InternVLVisionConfig(**VISION | {"image_size": [32, 32], "patch_size": [8, 8]}),
        downsample_ratio=0.5,
        **IDS,
    )


def blip(name: str) -> Callable[[], nn.Module]:
    sizes = {"ffn_dim": 48, "word_embed_proj_dim": 32}
    return lambda: built(
        f"{name}ForConditionalGeneration",
        f"{name}Config",
        text_config=transformers.OPTConfig(**TEXT | sizes).to_dict(),
        vision_config=VISION,
        qformer_config=QFORMER,
        num_query_tokens=6,
        image_token_index=IMAGE_TOKEN,
        image_text_hidden_size=16,
    )


def instructions(ids: Tensor) -> Inputs:
    words = torch.randint(10, 60, (len(ids), 5), generator=torch.Generator().manual_seed(4))
    return {"qformer_input_ids": words, "qformer_attention_mask": torch.ones_like(words)}


def in_prompts(pictures: tuple[int, ...]) -> Inputs:
    """Pictures by prompt, those that a prompt has fewer of are zeros."""
    values = noise(len(pictures), max(pictures), 3, 32, 32)
    for number, count in enumerate(pictures):
        values[number, count:] = 0
    return {"pixel_values": values}


def whole(_: int) -> int:
    return 16


def quarter(_: int) -> int:
    return 4


TINY_VLMS: dict[str, TinyVLM] = {
    "LLaVA": TinyVLM(llava(), whole, square),
    "PaliGemma": TinyVLM(paligemma, whole, square, lambda ids: {"token_type_ids": torch.zeros_like(ids)}),
    "Gemma 3": TinyVLM(gemma3, quarter, square, lambda ids: {"token_type_ids": (ids == IMAGE_TOKEN).long()}),
    "InternVL": TinyVLM(internvl, quarter, square),
    "Idefics 3": TinyVLM(shuffled("Idefics3"), quarter, in_prompts),
    "SmolVLM": TinyVLM(shuffled("SmolVLM"), quarter, in_prompts),
    "Qwen2-VL": TinyVLM(qwen("Qwen2VL", depth=2, embed_dim=24, hidden_size=32, num_heads=3), merged, packed, kinds),
    "Qwen2.5-VL": TinyVLM(
        qwen(
            "Qwen2_5_VL",
            depth=3,
            hidden_size=24,
            out_hidden_size=32,
            num_heads=3,
            intermediate_size=40,
            window_size=16,
            fullatt_block_indexes=[1],
        ),
        merged,
        packed,
        kinds,
    ),
    "Qwen3-VL": TinyVLM(
        qwen(
            "Qwen3VL",
            depth=3,
            hidden_size=24,
            out_hidden_size=32,
            num_heads=3,
            intermediate_size=40,
            deepstack_visual_indexes=[0, 1],
            num_position_embeddings=64,
        ),
        merged,
        packed,
        kinds,
    ),
    "LLaVA-NeXT": TinyVLM(with_tiles("LlavaNext", "CLIPVision", "Llama"), tiled, tiles),
    "LLaVA-OneVision": TinyVLM(with_tiles("LlavaOnevision", "SiglipVision", "Qwen2"), tiled, tiles),
    "BLIP-2": TinyVLM(blip("Blip2"), lambda n: 6, square),
    "InstructBLIP": TinyVLM(blip("InstructBlip"), lambda n: 6, square, instructions),
}
