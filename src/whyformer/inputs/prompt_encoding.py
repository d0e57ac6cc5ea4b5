"""Encode what comes before a response: a prompt, with images among its words or another input instead of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import decoder_beginning
from whyformer.inputs.conversation import Conversation
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.image_prompt import image_prompt_of, prompt_chunk
from whyformer.inputs.modality import known_modalities
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.teacher_forcing import Exchange
from whyformer.inputs.tool_prompt import any_prompt_of
from whyformer.models.loading import LoadedModel


@dataclass(frozen=True, eq=False)
class EncodedPrompt:
    """A prompt as the model takes it.

    Attributes:
        prompt: The text; empty if the prompt is of another modality.
        beginning: The tokens that an encoder-decoder's decoder starts with; None if prompt and response are one stream.
        encoded: The prompt as an example, if it has images or is of another modality.
    """

    prompt: Prompt
    beginning: tuple[int, ...] | None = None
    encoded: EncodedExample | None = None

    def exchange(self, response: Sequence[int]) -> Exchange:
        """The prompt with a response."""
        tokens = tuple(self.prompt.ids), tuple(response)
        if self.encoded is None:
            return Exchange(*tokens, self.beginning)
        return Exchange(*tokens, self.beginning, self.encoded.parts.get("image_text"), self.encoded.encoder_part)


def encode_prompt(
    loaded_model: LoadedModel, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None
) -> EncodedPrompt:
    """Encode a prompt: a text, chat messages, images with a text, or an input that is a prompt by itself."""
    task, modality = loaded_model.task, known_modalities()[loaded_model.task.modality]
    if isinstance(prompt, Conversation) and not task.is_text_only:
        raise WhyformerError(
            f"{loaded_model.name} reads more than texts: conversations with tools are explained for language models."
        )
    if task.sees_pictures_in_text:
        image_prompt = image_prompt_of(loaded_model, prompt, context, layout)
        encoded = EncodedExample(0, {"text": prompt_chunk(image_prompt), "image_text": image_prompt})
        return EncodedPrompt(image_prompt.prompt, encoded=encoded)
    if modality.is_prompt and task.writes:
        if context is not None or layout is not None:
            raise WhyformerError(
                f"context goes with a question, and the prompt of {loaded_model.name} is a {modality.noun}: leave it "
                "out."
            )
        (encoded,) = encode(loaded_model, [prompt])
        assert encoded.written is not None
        return EncodedPrompt(Prompt("", (), ""), tuple(encoded.written.encoding["input_ids"]), encoded)
    if task.sees_pictures and task.writes:
        raise WhyformerError(
            f"{loaded_model.name} keeps its picture apart from its text, which explain_response does not support: use "
            "continuation."
        )
    if isinstance(prompt, tuple) and len(prompt) == 2 and not isinstance(prompt[0], Mapping):
        raise WhyformerError(
            f"A pair is pictures and a text, and {loaded_model.name} reads texts alone: choose a model that writes "
            "about pictures, such as mini-vlm."
        )
    read = any_prompt_of(loaded_model, prompt, context, layout)
    return EncodedPrompt(read, tuple(decoder_beginning(loaded_model)) if task.writes and task.has_decoder else None)
