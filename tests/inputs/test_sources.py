"""Parts of prompts and responses: sources and spans, and the tokens that each holds."""

import copy
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prompt import CHAT, GPT, texts

from conftest import CHAT_TEMPLATE
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import prompt_of
from whyformer.inputs.prompt_tokens import text_tokens
from whyformer.inputs.sentences import paragraph_ranges, sentence_ranges
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of

KINDS = ["token", "word", "sentence", "paragraph", "message"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith met Mr. Jones on Jan. 5. He left.", ["Dr. Smith met Mr. Jones on Jan. 5.", "He left."]),
        ("😀 Hi there! 日本語です。次の文。", ["😀 Hi there!", "日本語です。", "次の文。"]),
        ("هذا نص عربي. وهذا آخر؟", ["هذا نص عربي.", "وهذا آخر؟"]),
        ("नमस्ते। आप कैसे हैं?", ["नमस्ते।", "आप कैसे हैं?"]),
        (" no end ", ["no end"]),
        (" \n", []),
    ],
)
def test_sentences_end_where_their_script_ends_them(text, sentences):
    assert [text[start:end] for start, end in sentence_ranges(text)] == sentences


def test_paragraphs_stand_between_blank_lines():
    text = " One\nline.\n \n\n Two. \n\n"
    assert [text[start:end] for start, end in paragraph_ranges(text)] == ["One\nline.", "Two."]


@given(texts)
@settings(max_examples=150)
def test_sentences_and_paragraphs_hold_all_but_white_space_in_its_order(text):
    for places in (sentence_ranges(text), paragraph_ranges(text)):
        assert "".join("".join(text[start:end] for start, end in places).split()) == "".join(text.split())
        assert all(first[1] <= second[0] for first, second in pairwise(places))
        assert all(text[start:end] == text[start:end].strip() != "" for start, end in places)


@given(st.lists(texts, min_size=1, max_size=3), st.sampled_from(KINDS))
@settings(max_examples=150)
def test_a_token_is_in_one_source_at_most_and_none_of_the_templates_in_any(contents, kind):
    prompt = prompt_of(CHAT, [{"role": "user", "content": content} for content in contents])
    sources = sources_of(prompt, kind)
    held = [number for source in sources for number in source.tokens]
    assert len(held) == len(set(held))
    assert not any(prompt.tokens[number].is_special for number in held)
    # Only white space between words, sentences or paragraphs is nobody's.
    rest = [token for number, token in enumerate(prompt.tokens) if number not in held and not token.is_special]
    assert not any(prompt.text[token.start : token.end].strip() for token in rest)
    for source in sources:
        assert source.text == prompt.text[source.start : source.end]
        assert any(one.start <= source.start and source.end <= one.end for one in prompt.messages)
        for number in source.tokens:
            token = prompt.tokens[number]
            assert max(token.start, source.start) < min(token.end, source.end)


@given(texts, st.sampled_from(["response", "sentence", "word", "token"]))
@settings(max_examples=150)
def test_the_spans_of_a_response_hold_its_tokens_once_each(text, units):
    tokens = text_tokens(text, GPT.tokenizer, add_special_tokens=False)
    if all(token.is_special for token in tokens):
        return
    spans = spans_of(text, tokens, units)
    held = [number for span in spans for number in span.tokens]
    assert held == sorted(set(held))
    rest = [token for number, token in enumerate(tokens) if number not in held]
    assert not any(text[token.start : token.end].strip() for token in rest)
    assert all(span.text == text[span.start : span.end] for span in spans)


def test_sentences_do_not_reach_from_one_document_or_message_into_the_next():
    prompt = prompt_of(GPT, "where is it?", context=[("a", "Oslo is cold"), ("b", "Paris is big. It is old")])
    sentences = [(source.name, source.text) for source in sources_of(prompt, "sentence")]
    assert sentences == [("a", "a: Oslo is cold"), ("b", "b: Paris is big."), ("b", "It is old"), ("", "where is it?")]
    spoken = prompt_of(CHAT, [{"role": "system", "content": "be brief"}, {"role": "user", "content": "where is it?"}])
    assert [source.text for source in sources_of(spoken, "sentence")] == ["be brief", "where is it?"]
    assert [source.name for source in sources_of(spoken, "message")] == ["system", "user"]


def test_without_a_kind_a_source_is_a_sentence_or_where_there_is_one_a_word():
    assert [source.text for source in sources_of(prompt_of(GPT, "It is cold. It is big."))] == [
        "It is cold.",
        "It is big.",
    ]
    assert [source.kind for source in sources_of(prompt_of(GPT, "It is cold."))] == ["word"] * 3


def test_places_of_the_callers_own_are_sources():
    prompt = prompt_of(GPT, "It is cold. It is big.")
    sources = sources_of(prompt, [(12, 17), (0, 11)])
    assert [(source.kind, source.text) for source in sources] == [("span", "It is cold."), ("span", "It is")]


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        ("sentense", r"sources='sentense'\. Did you mean 'sentence'\?"),
        ("document", r"sources='document': the prompt has no documents; give documents by context=\[…\]"),
        ("message", "sources='message': the prompt has no messages; give messages as prompt"),
        ([(0, 5), (3, 8)], r"The sources \(0, 5\) and \(3, 8\) overlap: a character belongs to one source\."),
        ([(0, 99)], r"The source \(0, 99\) is not in the prompt, which has 11 characters\."),
        (["cold"], r"A source is \(start, end\) in characters of the prompt, not 'cold'\."),
        ([], r"sources=\[\] selects no part of the prompt"),
        ([(0, 1), (1, 2)], r"The source \(1, 2\), 't', contains no whole token: widen it\."),
    ],
)
def test_sources_that_cannot_be_used_are_one_line(sources, reason):
    with pytest.raises(WhyformerError, match=reason):
        sources_of(prompt_of(GPT, "It is cold."), sources)


RESPONSE = "He landed in 1969. It was in July, in 1969."
TOKENS = text_tokens(RESPONSE, GPT.tokenizer, add_special_tokens=False)


def test_a_quotation_is_a_span_wherever_it_stands():
    spans = spans_of(RESPONSE, TOKENS, "in 1969")
    assert [(span.start, span.text) for span in spans] == [(10, "in 1969"), (35, "in 1969")]
    for span in spans:
        assert "".join(TOKENS[number].text for number in span.tokens).strip() == "in 1969"
    mixed = spans_of(RESPONSE, TOKENS, [(0, 9), "July"])
    assert [span.text for span in mixed] == ["He landed", "July"]


def test_without_units_a_span_is_a_sentence_or_where_there_is_one_the_whole():
    assert [span.text for span in spans_of(RESPONSE, TOKENS)] == ["He landed in 1969.", "It was in July, in 1969."]
    one = text_tokens(" a film", GPT.tokenizer, add_special_tokens=False)
    assert [span.text for span in spans_of(" a film", one)] == [" a film"]


@pytest.mark.parametrize(
    ("units", "reason"),
    [
        ("in 1696", r"'in 1696' is not in the response\. The closest match is 'in 1969\.'\."),
        (["it was in june"], r"'it was in june' is not in the response\. The closest match is 'It was in July,'\."),
        ([(40, 99)], r"The span \(40, 99\) is not in the response, which has 43 characters\."),
        ([3], r"A span is \(start, end\) in characters of the response, not 3\."),
        ([], r"units=\[\] selects no part of the response"),
    ],
)
def test_spans_that_cannot_be_used_are_one_line(units, reason):
    with pytest.raises(WhyformerError, match=reason):
        spans_of(RESPONSE, TOKENS, units)


def test_a_response_of_special_tokens_alone_is_refused():
    spoken = copy.deepcopy(GPT.tokenizer)
    spoken.chat_template = CHAT_TEMPLATE
    tokens = text_tokens(spoken.eos_token, spoken, add_special_tokens=False)
    with pytest.raises(WhyformerError, match="has only special tokens: there is nothing to explain"):
        spans_of(spoken.eos_token, tokens)
