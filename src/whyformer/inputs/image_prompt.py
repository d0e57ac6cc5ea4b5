"""Prompts with images, as a vision-language model reads them: words, and placeholders for image features."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import torch
from jinja2 import TemplateError
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError, reason_of
from whyformer.inputs.chat_template import render_chat
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.layouts import WordPieces, covered_box
from whyformer.inputs.prompt import (
    LAYOUT,
    Prompt,
    PromptDocument,
    align_with_contents,
    check_has_no_layout,
    check_is_question,
    documents_within,
    format_prompt,
)
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.read import image_of, text_of, two_of
from whyformer.models.bridges import image_token
from whyformer.models.compat import picture_settings
from whyformer.models.loading import LoadedModel
from whyformer.models.pictures import WHOLE, BoxShares
from whyformer.models.structure import config_of

EXPECTED = "a picture and a text: ('street.jpg', 'What colour is the bus?')"
MessagePart = Image.Image | str
# Models whose processor inserts the placeholders before a text that has none; for others they are added here.
INSERTS_PLACEHOLDERS = ("paligemma", "blip-2", "instructblip")


@dataclass(frozen=True, eq=False)
class ImagePrompt:
    """A prompt with images.

    Attributes:
        prompt: The text, and all tokens that the model reads; placeholders are special tokens.
        pictures: The images, in order.
        boxes: The area that each tile of each image covers, in shares of its width and height; one box without tiles.
        by_token: The inputs, other than the ids, that have an entry per token.
        pixels: The inputs of the images.
    """

    prompt: Prompt
    pictures: tuple[Image.Image, ...]
    boxes: tuple[tuple[BoxShares, ...], ...]
    by_token: dict[str, list[int]]
    pixels: Inputs


@dataclass(frozen=True)
class _Turn:
    """A message of a conversation: its role, and its images and texts in order."""

    role: str
    parts: tuple[MessagePart, ...]


def image_prompt_of(
    loaded_model: LoadedModel, example: Any, context: Sequence[Any] | None = None, layout: str | None = None
) -> ImagePrompt:
    """Encode (picture, text), ([pictures], text), or chat messages with pictures in their contents.

    With `context` the text is a question about documents, formatted by `layout` as in `prompt_of`.
    """
    documents: tuple[PromptDocument, ...] = ()
    if context is None:
        check_has_no_layout(layout)
        turns = [_turn(message) for message in example] if is_conversation(example) else [_one_turn(example)]
    else:
        check_is_question(context if is_conversation(example) else None)
        *shown, question = _one_turn(example).parts
        whole, documents = format_prompt(str(question), context, LAYOUT if layout is None else layout)
        turns = [_Turn("user", (*shown, whole))]
    pictures = tuple(part for turn in turns for part in turn.parts if isinstance(part, Image.Image))
    texts = [part for turn in turns for part in turn.parts if isinstance(part, str)]
    roles = [turn.role for turn in turns for part in turn.parts if isinstance(part, str)]
    if not pictures:
        raise WhyformerError(f"{loaded_model.name} takes {EXPECTED}, and this prompt has no picture.")
    if not any(text.strip() for text in texts):
        raise WhyformerError("The prompt has no words: give a text with its pictures.")
    template = _Template(loaded_model, turns, len(pictures), texts)
    prompt = align_with_contents(loaded_model, roles, texts, template.render, add_special_tokens=template.adds_special)
    encoding = _processed(loaded_model, pictures, prompt.rendered, add_special_tokens=template.adds_special)
    ids = encoding.pop("input_ids")[0].tolist()
    takes = set(inspect.signature(loaded_model.model.forward).parameters) - {"labels"}  # used in training only
    others = {name: value for name, value in encoding.items() if isinstance(value, Tensor) and name in takes}
    is_by_token = {name: value.dim() == 2 and value.shape[1] == len(ids) for name, value in others.items()}
    by_token = {name: value[0].tolist() for name, value in others.items() if is_by_token[name]}
    pixels = {name: value for name, value in others.items() if not is_by_token[name]}
    tokens = _expanded(loaded_model, prompt.tokens, ids)
    messages = prompt.messages if is_conversation(example) else ()
    placed = documents_within(prompt.text, texts[0], documents) if documents else ()
    read = Prompt(prompt.text, tokens, prompt.rendered, messages, placed)
    boxes = tuple(_boxes(loaded_model, picture) for picture in pictures)
    return ImagePrompt(read, pictures, boxes, by_token, pixels)


def _boxes(loaded_model: LoadedModel, picture: Image.Image) -> tuple[BoxShares, ...]:
    """The area of a picture that each of the tower's images covers: all of it, its crop, or a tile."""
    processor = loaded_model.image_processor
    if getattr(processor, "do_image_splitting", False):
        info = processor(images=[[picture]], return_row_col_info=True)
        return (*_tiles(info["rows"][0][0], info["cols"][0][0]), WHOLE)
    if hasattr(processor, "crop_to_patches"):
        grid = _cut_grid(loaded_model, picture.size)
        return (WHOLE,) if grid == (1, 1) else (*_tiles(*grid), WHOLE)
    if not getattr(processor, "do_center_crop", False) or hasattr(processor, "image_grid_pinpoints"):
        return (WHOLE,)
    width, height = picture.size
    left, top, right, bottom = covered_box(processor, picture.size)
    return ((left / width, top / height, right / width, bottom / height),)


def _tiles(rows: int, columns: int) -> list[BoxShares]:
    """The tiles of a picture cut into a grid, row by row."""
    return [
        (column / columns, row / rows, (column + 1) / columns, (row + 1) / rows)
        for row in range(rows)
        for column in range(columns)
    ]


def _cut_grid(loaded_model: LoadedModel, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns that a processor cuts a picture of this size into, before it adds the whole.

    Processors state the number of tiles (`num_patches`, `get_number_of_image_patches`), but not their rows and columns,
    which are local variables. A vertical brightness ramp reveals these: the tiles of a row are equally bright.
    """
    settings = picture_settings(loaded_model.processor)
    ramp = Image.linear_gradient("L").resize(size, Image.Resampling.NEAREST).convert("RGB")
    cuts = loaded_model.image_processor(images=[ramp], return_tensors="pt", **settings)
    brightness = cuts["pixel_values"].flatten(1).mean(dim=1)
    count = max(1, len(brightness) - 1)  # the last is the whole picture, unless it is the only one
    columns = int(torch.isclose(brightness[:count], brightness[0], atol=1e-3).sum())
    return count // columns, columns


def prompt_chunk(image_prompt: ImagePrompt) -> Chunk:
    """The words of a prompt with images, the tokens that are scored."""
    tokens = image_prompt.prompt.tokens
    positions = tuple(place for place, token in enumerate(tokens) if not token.is_special)
    words = [tokens[place] for place in positions]
    layout = WordPieces(
        (image_prompt.prompt.text,),
        tuple(token.text for token in words),
        (0,) * len(words),
        tuple((token.start, token.end) for token in words),
    )
    encoding = {"input_ids": image_prompt.prompt.ids, "attention_mask": [1] * len(tokens)} | image_prompt.by_token
    return Chunk(encoding, positions, tuple((0, place) for place in range(len(words))), layout)


def image_inputs(prompts: Sequence[ImagePrompt]) -> Inputs:
    """Concatenate the image inputs of several prompts; missing tiles are padded with zeros."""
    inputs: Inputs = {}
    for name in prompts[0].pixels:
        parts = [prompt.pixels[name] for prompt in prompts]
        most = max(part.shape[1] for part in parts) if parts[0].dim() > 3 else None
        if most is not None:
            parts = [F.pad(part, (0, 0) * (part.dim() - 2) + (0, most - part.shape[1])) for part in parts]
        inputs[name] = torch.cat(parts)
    return inputs


def is_conversation(example: Any) -> bool:
    """Whether an example is a list of chat messages."""
    return isinstance(example, (list, tuple)) and bool(example) and isinstance(example[0], Mapping)


def has_picture(example: Any) -> bool:
    """Whether an example contains a picture: by itself, in a pair, or in a message."""
    if isinstance(example, Mapping):
        return has_picture(example.get("content")) or example.get("type") == "image"
    return isinstance(example, Image.Image) or (isinstance(example, (list, tuple)) and any(map(has_picture, example)))


def _one_turn(example: Any) -> _Turn:
    pictures, text = two_of(example, EXPECTED)
    several = pictures if isinstance(pictures, (list, tuple)) else [pictures]
    return _Turn("user", (*map(image_of, several), _text(text)))


def _text(text: Any) -> str:
    words = text_of(text)
    if not isinstance(words, str):
        raise WhyformerError(f"This model takes {EXPECTED}, not a pair of texts.")
    return words


def _turn(message: Any) -> _Turn:
    content = message.get("content") if isinstance(message, Mapping) else None
    role = message.get("role") if isinstance(message, Mapping) else None
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(role, str) or not isinstance(parts, (list, tuple)):
        raise WhyformerError(
            "A message is {'role': …, 'content': …}, its content a text or a list of {'type': 'image', 'image': …} and "
            f"{{'type': 'text', 'text': …}}, not {message!r:.60}."
        )
    return _Turn(role, tuple(map(_part, parts)))


def _part(part: Any) -> MessagePart:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    picture = next((part[name] for name in ("image", "path") if part.get(name) is not None), None) if kind else None
    if kind != "image" or picture is None:
        raise WhyformerError(
            f"A message contains {{'type': 'image', 'image': …}} and {{'type': 'text', 'text': …}}, not {part!r:.60}."
        )
    return image_of(picture)


class _Template:
    """Renders turns as one text: by the processor's chat template, or with placeholders before the text."""

    def __init__(self, loaded_model: LoadedModel, turns: Sequence[_Turn], pictures: int, texts: Sequence[str]):
        self._loaded_model, self._turns = loaded_model, turns
        processor = loaded_model.processor
        mark = getattr(processor, "boi_token", None) or getattr(processor, "image_token", None)
        self._mark = str(mark) if mark is not None else ""
        written = sum(text.count(self._mark) for text in texts) if self._mark else 0
        if written and written != pictures:
            raise WhyformerError(
                f"The text has {written} placeholder{'s' * (written > 1)} ({self._mark}) for {pictures} "
                f"picture{'s' * (pictures > 1)}: write one for each, or none to have them inserted before it."
            )
        has_template = bool(getattr(processor, "chat_template", None))
        if not has_template and len(turns) > 1:
            raise WhyformerError(f"The processor of {loaded_model.name} has no chat template for messages.")
        self._by_template = has_template and not written
        needs_marks = not (written or has_template or config_of(loaded_model.model).model_type in INSERTS_PLACEHOLDERS)
        self._before = self._mark * pictures + "\n" if needs_marks else ""
        start = getattr(loaded_model.tokenizer, "bos_token", None)
        self.adds_special = not (start and self.render(texts).startswith(start))

    def render(self, texts: Sequence[str]) -> str:
        """Render the prompt with these texts in place of its texts."""
        if not self._by_template:
            return self._before + "".join(texts)
        rest = iter(texts)
        messages = [
            {
                "role": turn.role,
                "content": [
                    {"type": "text", "text": next(rest)} if isinstance(part, str) else {"type": "image"}
                    for part in turn.parts
                ],
            }
            for turn in self._turns
        ]
        try:
            return render_chat(self._loaded_model.processor, messages)
        except (TemplateError, TypeError, KeyError) as error:
            raise WhyformerError(
                f"The chat template of {self._loaded_model.name} does not take this prompt: {reason_of(error)}"
            ) from error


def _processed(
    loaded_model: LoadedModel, pictures: Sequence[Image.Image], text: str, *, add_special_tokens: bool
) -> dict[str, Any]:
    """Run the processor on pictures and a text."""
    settings = {} if add_special_tokens else {"add_special_tokens": False}
    try:
        encoding = loaded_model.processor(images=list(pictures), text=text, return_tensors="pt", **settings)
    except (ValueError, IndexError) as error:
        raise WhyformerError(
            f"The processor of {loaded_model.name} does not take {len(pictures)} pictures with this text: "
            f"{reason_of(error)}"
        ) from error
    placeholders = int((encoding["input_ids"] == image_token(loaded_model.model.config)).sum())
    if not placeholders:
        raise WhyformerError(
            f"The processor of {loaded_model.name} inserts no placeholder for the pictures: write it in the text."
        )
    return dict(encoding)


def _expanded(loaded_model: LoadedModel, tokens: Sequence[Token], ids: Sequence[int]) -> tuple[Token, ...]:
    """Align the text's tokens with the processor's ids; all others become special tokens."""
    picture, names = image_token(loaded_model.model.config), loaded_model.tokenizer.convert_ids_to_tokens(list(ids))
    own = [(number, token) for number, token in enumerate(tokens) if token.id != picture]
    kept = [number for number, token in enumerate(ids) if token != picture]
    matcher = SequenceMatcher(None, [token.id for _, token in own], [ids[number] for number in kept], autojunk=False)
    matches = {
        kept[block.b + step]: own[block.a + step][1]
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    }
    if sum(not token.is_special for token in matches.values()) < sum(not token.is_special for token in tokens):
        raise WhyformerError(
            f"The processor of {loaded_model.name} changes the words of the text: its tokens cannot be aligned."
        )
    place, result = 0, []
    for number, token in enumerate(ids):
        match = matches.get(number)
        place = place if match is None else match.end
        result.append(Token(token, names[number], place, place, is_special=True) if match is None else match)
    return tuple(result)
