"""A prompt without some of its sources, as the model reads it."""

from __future__ import annotations

import copy

import pytest
from tokenizers.processors import TemplateProcessing

from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import prompt_of
from whyformer.inputs.sources import sources_of
from whyformer.models.loading import LoadedModel
from whyformer.removal.prompt_text import ids_without, with_white_space

PARAGRAPHS = "One. Two. Three.\n\nFour. Five."


def text_without(text: str, *parts: str) -> str:
    places = with_white_space(text, [(text.index(part), text.index(part) + len(part)) for part in parts])
    for start, end in sorted(places, reverse=True):
        text = text[:start] + text[end:]
    return text


@pytest.mark.parametrize(
    ("parts", "rest"),
    [
        ([], PARAGRAPHS),
        (["One."], "Two. Three.\n\nFour. Five."),
        (["Two."], "One. Three.\n\nFour. Five."),
        (["Three."], "One. Two.\n\nFour. Five."),
        (["Four."], "One. Two. Three.\n\nFive."),
        (["Five."], "One. Two. Three.\n\nFour."),
        (["Two.", "Three."], "One.\n\nFour. Five."),
        (["Three.", "Four."], "One. Two. Five."),
        (["One.", "Two.", "Three.", "Four.", "Five."], ""),
    ],
)
def test_what_is_left_stands_apart_as_it_did(parts, rest):
    assert text_without(PARAGRAPHS, *parts) == rest


def test_the_tokens_are_those_of_what_is_left(gpt):
    prompt = prompt_of(gpt, PARAGRAPHS)
    assert ids_without(gpt, prompt, []) == prompt.ids
    sentences = [(source.start, source.end) for source in sources_of(prompt, "sentence")]
    expected = prompt_of(gpt, "One. Three.\n\nFour. Five.").ids
    assert ids_without(gpt, prompt, sentences[1:2]) == expected


def test_messages_go_through_their_template_again(chat):
    messages = [{"role": "system", "content": "One. Two."}, {"role": "user", "content": "Three. Four."}]
    prompt = prompt_of(chat, messages)
    assert ids_without(chat, prompt, []) == prompt.ids
    sentences = [(source.start, source.end) for source in sources_of(prompt, "sentence")]
    fewer = [{"role": "system", "content": "One."}, {"role": "user", "content": "Four."}]
    assert ids_without(chat, prompt, sentences[1:3]) == prompt_of(chat, fewer).ids
    assert ids_without(chat, prompt, sentences), "the template is left"


def test_where_nothing_is_left_a_response_begins_a_text(gpt):
    tokenizer = copy.deepcopy(gpt.tokenizer)
    prompt = prompt_of(gpt, "One.")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A")
    plain = LoadedModel(gpt.model, tokenizer, "plain")
    assert ids_without(gpt, prompt, [(0, 4)]) == ids_without(plain, prompt, [(0, 4)]) == [tokenizer.bos_token_id]
    for name in ("bos_token", "eos_token", "pad_token"):
        setattr(tokenizer, name, None)
    with pytest.raises(WhyformerError, match=r"the prompt is empty, and the tokenizer of plain has no token"):
        ids_without(plain, prompt, [(0, 4)])
