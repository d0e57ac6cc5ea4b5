"""Prompts: texts, conversations and documents, and the characters that their tokens stand for."""

import copy

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from conftest import CHAT_TEMPLATE, tokenizer
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import PromptDocument, format_prompt, prompt_of, remove_ranges
from whyformer.inputs.prompt_tokens import id_tokens, text_tokens
from whyformer.models.loading import LoadedModel, load

GPT = load("mini-gpt", device="cpu")  # byte-level BPE: a character may take several tokens
CHAT = LoadedModel(GPT.model, copy.deepcopy(GPT.tokenizer), "chat")
CHAT.tokenizer.chat_template = CHAT_TEMPLATE

PIECES = ["a", "film", " ", "\n", "\n\n", ".", "! ", "\t", "<|user|>"]
PIECES += ["é", "e\u0301", "😀", "👩\u200d👩\u200d👧", "日本", "語。", "שלום", " مرحبا", "؟", "ไทย", "नमस्ते।"]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join).filter(str.strip)


def covered(tokens) -> list[int]:
    """The places of the characters that some token stands for."""
    return sorted({place for token in tokens for place in range(token.start, token.end)})


@given(texts)
@settings(max_examples=150)
def test_the_tokens_of_a_text_stand_for_all_its_characters_in_their_order(text):
    tokens = text_tokens(text, GPT.tokenizer, add_special_tokens=True)
    assert covered(tokens) == list(range(len(text)))
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
    assert all(token.text == text[token.start : token.end] for token in tokens if not token.is_special)
    assert [token.id for token in tokens] == GPT.tokenizer(text)["input_ids"]


@given(texts)
@settings(max_examples=100)
def test_tokens_read_and_tokens_written_stand_for_the_same_characters(text):
    read = text_tokens(text, GPT.tokenizer, add_special_tokens=False)
    spelt, written = id_tokens([token.id for token in read], GPT.tokenizer)
    assert spelt == text
    assert [(token.start, token.end) for token in written] == [(token.start, token.end) for token in read]


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), min_size=1, max_size=4))
@settings(max_examples=100)
def test_every_character_of_a_conversation_has_its_token_and_the_template_has_none(turns):
    messages = [{"role": role, "content": content} for role, content in turns]
    prompt = prompt_of(CHAT, messages)
    assert prompt.text == "\n\n".join(content.strip() for _, content in turns)
    assert [(one.role, prompt.text[one.start : one.end]) for one in prompt.messages] == [
        (role, content.strip()) for role, content in turns
    ]
    within = {place for one in prompt.messages for place in range(one.start, one.end)}
    assert set(covered(prompt.tokens)) == within
    assert prompt.rendered == CHAT.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt.ids == CHAT.tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"]
    assert all(token.is_special == (token.start == token.end) for token in prompt.tokens)


def test_what_a_message_says_is_not_taken_for_the_templates_words():
    prompt = prompt_of(CHAT, [{"role": "user", "content": "user|>\n"}, {"role": "user", "content": "assistant"}])
    assert prompt.text == "user|>\n\nassistant"
    spoken = [token for token in prompt.tokens if not token.is_special]
    assert "".join(token.text for token in spoken) == "user|>assistant"
    assert prompt.rendered[: len("<|user|>")] == "<|user|>"
    assert prompt.tokens[0].is_special


def test_tokens_that_the_tokenizer_adds_are_special_and_unknown_words_are_not():
    bert = LoadedModel(GPT.model, tokenizer(), "bert")
    prompt = prompt_of(bert, "the xyz was")
    assert [(token.text, token.is_special) for token in prompt.tokens] == [
        ("[CLS]", True),
        ("the", False),
        (" xyz", False),
        (" was", False),
        ("[SEP]", True),
    ]


def test_a_token_of_a_sentence_piece_holds_the_space_before_its_word():
    words = ["<s>", "<unk>", "▁the", "▁film", "ly"]
    parts = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    parts.pre_tokenizer, parts.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=parts, bos_token="<s>", unk_token="<unk>")
    tokens = text_tokens("the film", made, add_special_tokens=False)
    assert [token.text for token in tokens] == ["the", " film"]


def test_documents_stand_in_the_prompt_with_their_names_where_the_layout_puts_them():
    prompt = prompt_of(
        GPT, "Where is it?", context=["Paris is big.", ("wiki", "Oslo. Cold."), {"name": "n", "text": "x"}]
    )
    assert prompt.text == "Paris is big.\n\nwiki: Oslo. Cold.\n\nn: x\n\nWhere is it?"
    shown = [(one.name, prompt.text[one.start : one.end]) for one in prompt.documents]
    assert shown == [("document 1", "Paris is big."), ("wiki", "wiki: Oslo. Cold."), ("n", "n: x")]
    text, documents = format_prompt("Why?", [("a", "b")], "Q: {question}\n{{}} {documents}!")
    assert (text, documents) == ("Q: Why?\n{} a: b!", (PromptDocument("a", 11, 15),))
    asked = prompt_of(CHAT, "Where?", context=[("wiki", "Oslo.")], layout=" {documents}\n{question} ")
    assert [one.role for one in asked.messages] == ["user"]
    assert [asked.text[one.start : one.end] for one in asked.documents] == ["wiki: Oslo."]


def test_regions_end_where_documents_and_messages_do():
    prompt = prompt_of(CHAT, "Where is it?", context=[("wiki", "Oslo. Cold."), "Paris"])
    regions = [(one.name, prompt.text[one.start : one.end].strip()) for one in prompt.regions]
    assert regions == [("wiki", "wiki: Oslo. Cold."), ("document 2", "Paris"), ("user", "Where is it?")]


def test_a_prompt_is_rebuilt_without_some_of_its_places():
    prompt = prompt_of(GPT, "One. Two. Three.")
    assert remove_ranges(prompt, [(5, 10), (0, 5)]) == "Three."
    assert remove_ranges(prompt, []) == prompt.text
    spoken = prompt_of(CHAT, [{"role": "system", "content": "One. Two."}, {"role": "user", "content": "Three."}])
    place = spoken.text.index("Two.")
    rest = remove_ranges(spoken, [(place, place + 4)])
    assert rest == [{"role": "system", "content": "One. "}, {"role": "user", "content": "Three."}]
    assert prompt_of(CHAT, remove_ranges(spoken, [])) == spoken


@pytest.mark.parametrize(
    ("prompt", "settings", "reason"),
    [
        (" \n", {}, r"The prompt is empty: give a text, chat messages, or a question with context=\[…\]\."),
        ([], {}, r"The prompt is empty: give at least one message with content\."),
        ([{"role": "user", "content": " "}], {}, r"The prompt is empty: give at least one message with content\."),
        (7, {}, r"A prompt is a text, a Path to one, or a list of chat messages, not int 7\."),
        ([("user", "hi")], {}, r"A message is \{'role': …, 'content': …\}, both texts, not \('user', 'hi'\)\."),
        (
            [{"role": "robot", "content": "hi"}],
            {},
            r"The chat template of chat does not accept these messages \(roles: robot\): Unknown role: robot",
        ),
        ([{"role": "user", "content": "a"}], {"context": ["b"]}, "context goes with a question, not with messages"),
        ("a", {"context": []}, r"context=\[\] has no document: give at least one, or leave it out\."),
        ("a", {"context": ["b", ("wiki", " ")]}, r"The document 'wiki' is empty: leave it out, or give its text\."),
        ("a", {"context": ["b", " "]}, r"The document 'document 2' is empty"),
        (
            "a",
            {"context": [3]},
            r"Document 1 of context is a text, \(name, text\) or \{'name': …, 'text': …\}, not 3\.",
        ),
        ("a", {"context": ["b"], "layout": "{question}"}, r"layout='\{question\}': a text with \{documents\} and"),
        ("a", {"layout": "{question}"}, "layout says where the documents of context="),
    ],
)
def test_a_prompt_that_cannot_be_used_is_one_line(prompt, settings, reason):
    with pytest.raises(WhyformerError, match=reason):
        prompt_of(CHAT, prompt, **settings)


def test_messages_need_a_template_that_shows_them():
    reason = r"The tokenizer of mini-gpt has no chat template for messages: give a text, or set tokenizer"
    with pytest.raises(WhyformerError, match=reason):
        prompt_of(GPT, [{"role": "user", "content": "hi"}])
    deaf = LoadedModel(GPT.model, copy.deepcopy(GPT.tokenizer), "deaf")
    deaf.tokenizer.chat_template = "{{ messages[-1]['content'] | upper }}"
    with pytest.raises(WhyformerError, match=r"leaves out or changes the content of message 1 \(user\)"):
        prompt_of(deaf, [{"role": "user", "content": "hi"}])
