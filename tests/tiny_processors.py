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


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, of 60; <image> is the fifth, as it is in the tiny models."""
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
    )


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
