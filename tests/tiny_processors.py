"""Processors of vision-language models, made of a few words: nothing is fetched."""

from __future__ import annotations

from typing import Any

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = "what colour is the star circle ? red blue user assistant : a picture of two pictures which one and .".split()
MARKS = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<row_1_col_1>"]
ENDS = ["<pad>", "<s>", "</s>", "<unk>", "\n"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} : {% for c in m.content %}"
    '{% if c.type == "image" %} <image> {% else %}{{ c.text }}{% endif %}{% endfor %} {% endfor %}'
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def tokenizer(**marks: str) -> PreTrainedTokenizerFast:
    """One token a word, of 60; <image> is the fifth, as it is in the tiny models. `marks` name some of them."""
    vocabulary = {word: number for number, word in enumerate([*ENDS, *MARKS, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=MARKS,
        model_specific_special_tokens=marks,
    )


def without_video(name: str, *parts: Any, **settings: Any) -> Any:
    """A stock processor without its part for videos, which would need torchvision."""
    stock = getattr(transformers, name)
    kind = type(name, (stock,), {"get_attributes": classmethod(lambda cls: ["image_processor", "tokenizer"])})
    return kind(*parts, **settings)


SQUARE = {"height": 32, "width": 32}
VIDEO = {"video_token": "<row_1_col_1>"}


def qwen_processor(name: str) -> Any:
    pixels = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 64, "max_pixels": 20 * 64}
    marks = VIDEO | {"vision_start_token": "<global-img>", "vision_end_token": "<end_of_utterance>"}
    words = tokenizer(image_token="<image>", **marks)
    template = TEMPLATE.replace(" <image> ", " <global-img><image><end_of_utterance> ")
    return without_video(name, transformers.Qwen2VLImageProcessorPil(**pixels), words, chat_template=template)


def internvl_processor(most: int = 6) -> Any:
    images = transformers.GotOcr2ImageProcessorPil(size=SQUARE, max_patches=most)
    marks = {"start_image_token": MARKS[1], "end_image_token": MARKS[2], "context_image_token": "<image>"}
    return without_video(
        "InternVLProcessor", images, tokenizer(**marks, **VIDEO), image_seq_length=4, chat_template=TEMPLATE
    )


def onevision_processor() -> Any:
    images = transformers.LlavaOnevisionImageProcessorPil(
        size=SQUARE, image_grid_pinpoints=[[32, 64], [64, 32], [64, 64]]
    )
    settings = {"num_image_tokens": 16, "vision_feature_select_strategy": "full", "chat_template": TEMPLATE}
    return without_video("LlavaOnevisionProcessor", images, tokenizer(), **settings)


def gemma3_processor() -> transformers.Gemma3Processor:
    images = transformers.Gemma3ImageProcessorPil(size=SQUARE)
    words = tokenizer(boi_token="<global-img>", eoi_token="<end_of_utterance>", image_token="<image>")
    template = TEMPLATE.replace("<image>", "<global-img>")
    return transformers.Gemma3Processor(images, words, image_seq_length=4, chat_template=template)


def blip2_processor() -> transformers.Blip2Processor:
    images = transformers.BlipImageProcessorPil(size=SQUARE)
    return transformers.Blip2Processor(images, tokenizer(), num_query_tokens=6)


def instructblip_processor() -> transformers.InstructBlipProcessor:
    """Its Q-Former reads the question, too, by a tokenizer of its own."""
    images = transformers.BlipImageProcessorPil(size=SQUARE)
    return transformers.InstructBlipProcessor(images, tokenizer(), tokenizer(), num_query_tokens=6)


def llava_processor(height: int = 32, width: int = 32, **settings: Any) -> transformers.LlavaProcessor:
    size = {"height": height, "width": width}
    images = transformers.CLIPImageProcessorPil(size=size, crop_size=size, do_center_crop=False)
    return transformers.LlavaProcessor(
        images,
        tokenizer(),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        **{"chat_template": TEMPLATE} | settings,
    )


def llava_next_processor() -> transformers.LlavaNextProcessor:
    size = {"height": 32, "width": 32}
    images = transformers.LlavaNextImageProcessorPil(
        size=size, crop_size=size, image_grid_pinpoints=[[32, 64], [64, 32], [64, 64]]
    )
    return transformers.LlavaNextProcessor(
        images,
        tokenizer(),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )


def paligemma_processor() -> transformers.PaliGemmaProcessor:
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    return transformers.PaliGemmaProcessor(images, tokenizer())


def idefics_processor() -> transformers.Idefics3Processor:
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    return transformers.Idefics3Processor(images, tokenizer(), image_seq_len=4, chat_template=TEMPLATE)
