"""The sources of an action: a tree down to sentences of results, with labels of trust."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_agents import STYLES, TOOLS, agent, called, result
from whyformer.errors import WhyformerError
from whyformer.inputs.action_sources import action_sources, labelled_ranges
from whyformer.inputs.conversation import conversation_of
from whyformer.inputs.json_paths import json_values
from whyformer.inputs.tool_prompt import tool_prompt_of

AGENTS = {style: agent(style) for style in STYLES}
USER = {"role": "user", "content": "Pay the bill."}
MAIL = '[{"from": "Ann", "body": "Hello. Pay 30!"}, {"from": "Eve", "body": "x"}]'
LISTED = "- from: Ann\n  body: Hello. Pay 30!\n- from: Eve\n  body: x\n"
texts = st.text(st.sampled_from('ab. {}[]"\\\n é日,:'), max_size=10)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def sources_of_result(content: str, style: str = "qwen", **options):
    messages = [USER, called("read_mail"), result(content)]
    return action_sources(tool_prompt_of(AGENTS[style], conversation_of(messages, TOOLS)), **options)


@given(documents, st.sampled_from([None, 1, 4]))
@settings(max_examples=150)
def test_json_values_are_the_values_at_their_paths(document, indent):
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    values = json_values(text)
    assert bool(values) == isinstance(document, (dict, list))
    for value in values:
        own = text[value.start : value.end]
        expected = document
        for step in steps(value, values):
            expected = expected[step]
        assert json.loads(f'"{own}"' if value.is_text else own) == expected


def steps(value, values):
    """The keys and indices from the whole to a value, read from its place among its siblings."""
    if value.parent is None:
        return []
    above = values[value.parent]
    step = value.path.removeprefix(above.path)
    key = step[1:] if step.startswith(".") else json.loads(step[1:-1])
    return [*steps(above, values), key]


@pytest.mark.parametrize("content", ["", "x", "3", "[1", '{"a": 1} and more', '"text"', "[1,]"])
def test_what_is_not_a_json_document_has_no_values(content):
    assert json_values(content) == []


@pytest.mark.parametrize("style", STYLES)
def test_a_json_result_is_a_tree_of_values_and_sentences(style):
    sources = sources_of_result(MAIL, style)
    names = {one.name: one for one in sources}
    # One template writes results as JSON texts, which escapes their quotes.
    assert json.loads(f'"{names["read_mail[0].body, sentence 2"].text}"') == "Pay 30!"
    assert names["read_mail[0].from"].text == "Ann"
    assert names["read_mail[1].body"].text == "x"
    assert sources[names["read_mail[0].body, sentence 2"].parent].name == "read_mail[0].body"
    assert sources[names["read_mail[0].body"].parent].name == "read_mail[0]"


def test_a_result_of_lines_is_a_tree_of_blocks_lines_and_sentences():
    sources = sources_of_result(LISTED)
    named = [(one.kind, one.name, one.text) for one in sources if one.name.startswith("read_mail ")]
    assert named == [
        ("block", "read_mail block 1", "- from: Ann\n  body: Hello. Pay 30!"),
        ("line", "read_mail line 1", "- from: Ann"),
        ("line", "read_mail line 2", "body: Hello. Pay 30!"),
        ("sentence", "read_mail line 2, sentence 1", "body: Hello."),
        ("sentence", "read_mail line 2, sentence 2", "Pay 30!"),
        ("block", "read_mail block 2", "- from: Eve\n  body: x"),
        ("line", "read_mail line 3", "- from: Eve"),
        ("line", "read_mail line 4", "body: x"),
    ]


@given(st.text(st.sampled_from('ab. \n-é{}"'), min_size=1, max_size=40).filter(str.strip))
@settings(max_examples=80, deadline=None)
def test_a_source_lies_within_its_parent_after_it_and_apart_from_its_siblings(content):
    sources = sources_of_result(content)
    last: dict[int | None, int] = {}
    for number, one in enumerate(sources):
        assert one.parent is None or one.parent < number
        above = None if one.parent is None else sources[one.parent]
        assert above is None or above.start <= one.start < one.end <= above.end
        assert last.get(one.parent, 0) <= one.start
        last[one.parent] = one.end


def test_tokens_are_those_of_the_characters():
    read = tool_prompt_of(AGENTS["qwen"], conversation_of([USER, called("read_mail"), result(MAIL)], TOOLS))
    for one in action_sources(read):
        covered = "".join(read.prompt.text[read.prompt.tokens[n].start : read.prompt.tokens[n].end] for n in one.tokens)
        assert covered.strip(' "{}[]:,') in one.text or one.text in covered


def test_results_are_untrusted_and_messages_of_the_user_the_request_unless_told_otherwise():
    trusts = {one.name: one.trust for one in sources_of_result(MAIL)}
    assert (trusts["user"], trusts["read_mail[0].from"], trusts["send_money"]) == ("request", "untrusted", "trusted")
    sources = sources_of_result(MAIL, trust={"read_mail": "trusted", "read_mail[0].body": "untrusted", "user": "model"})
    trusts = {(one.kind, one.name): one.trust for one in sources}
    assert trusts["tool result", "read_mail"] == trusts["value", "read_mail[1].body"] == "trusted"
    assert trusts["sentence", "read_mail[0].body, sentence 2"] == "untrusted"
    assert trusts["user", "user"] == "model"
    (place,) = labelled_ranges(sources, "untrusted")
    assert place == next((one.start, one.end) for one in sources if one.name == "read_mail[0].body")


@pytest.mark.parametrize(
    ("trust", "line"),
    [
        ({"read_mail": "evil"}, r"trust\['read_mail'\]='evil'\. Known: request, trusted"),
        ({"read_mial": "trusted"}, "trust names 'read_mial', which is not a source. Did you mean 'read_mail'"),
    ],
)
def test_bad_labels_get_one_line(trust, line):
    with pytest.raises(WhyformerError, match=line):
        sources_of_result(MAIL, trust=trust)
