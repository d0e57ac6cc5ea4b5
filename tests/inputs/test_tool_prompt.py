"""Conversations with tools: what templates write of schemas, messages, calls and results is found exactly."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_agents import HERMES, STYLES, TOOLS, agent, called, result
from whyformer.errors import WhyformerError
from whyformer.inputs.conversation import ChatMessage, ToolCall, call_of, conversation_of, parse_calls
from whyformer.inputs.tool_prompt import render_conversation, reply_with_calls, tool_prompt_of

AGENTS = {style: agent(style) for style in STYLES}
BEFORE = [
    {"role": "system", "content": "You are a bank."},
    {"role": "user", "content": "Pay the bill in my inbox."},
    called("read_mail"),
    result('[{"from": "Ann", "body": "Pay 30 to \\"DE89\\"."}]'),
]
every_style = pytest.mark.parametrize("style", STYLES)
plain = st.text(st.sampled_from("ab {}\"'\\/\n\té😀日<>|:,_[]"), max_size=12)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
leaves = st.none() | st.booleans() | st.integers(-1000, 1000) | st.sampled_from([0.5, -2.25, 1e20]) | plain
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3), max_leaves=6
)
calls = st.builds(ToolCall, names, st.dictionaries(names, values, max_size=4))


def written(style: str, call: ToolCall) -> tuple[str, dict[str, str]]:
    """The name and the arguments that the ranges of a call contain."""
    prompt = tool_prompt_of(AGENTS[style], conversation_of(BEFORE, TOOLS))
    text, (places,) = reply_with_calls(AGENTS[style], prompt, ChatMessage("assistant", "", (call,)))
    name = text[slice(*places.name)]
    assert text.strip() == text
    assert places.decision[1] == places.name[0]
    assert json.loads(text[text.index("{") : text.rindex("}") + 1])["name"] == call.name
    return name, {key: text[slice(*place)] for key, place in places.arguments.items()}


@every_style
@given(calls)
@settings(max_examples=60, deadline=None)
def test_the_ranges_of_a_call_are_its_name_and_its_values(style, call):
    name, arguments = written(style, call)
    assert name == call.name
    assert list(arguments) == list(call.arguments)
    for key, value in call.arguments.items():
        text = arguments[key]
        assert json.loads(f'"{text}"' if isinstance(value, str) and value else text) == value


@every_style
@given(st.lists(plain.filter(str.strip), min_size=2, max_size=4), st.lists(calls, min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_every_part_of_a_conversation_is_found(style, contents, made):
    messages = [{"role": "system", "content": contents[0]}, {"role": "user", "content": contents[1]}]
    for number, (content, call) in enumerate(zip([*contents[2:], "done"], made, strict=False)):
        messages += [called(call.name, number, **call.arguments), result(content, number)]
    read = tool_prompt_of(AGENTS[style], conversation_of(messages, TOOLS))
    assert [part.name for part in read.parts if part.kind == "tool schema"] == ["read_mail", "send_money"]
    for part in read.parts:
        text = read.prompt.text[part.start : part.end]
        if part.kind == "message":
            expected = messages[part.number]["content"]
            is_json = style == "llama" and part.role == "tool"
            assert (json.loads(f'"{text}"') if is_json else text).strip() == expected.strip()
        else:
            document = json.loads(text)
            assert document.get("function", document)["name"] == part.name


@every_style
def test_places_in_the_text_are_places_in_what_the_model_reads(style):
    prompt = tool_prompt_of(AGENTS[style], conversation_of(BEFORE, TOOLS)).prompt
    for message, (start, end) in zip(prompt.messages, prompt.places, strict=True):
        assert prompt.rendered[start:end] == prompt.text[message.start : message.end]
    assert prompt.ids == AGENTS[style].tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"]
    assert [one.name for one in prompt.documents] == ["read_mail"]


@every_style
def test_offsets_in_a_result_are_followed_through_its_escapes(style):
    read = tool_prompt_of(AGENTS[style], conversation_of(BEFORE, TOOLS))
    (part,) = (part for part in read.parts if part.role == "tool")
    start = part.content.index("Pay 30")
    text = read.prompt.text[part.place(start) : part.place(start + len("Pay 30"))]
    assert text == "Pay 30"


@every_style
def test_a_reply_follows_the_prompt_as_the_template_writes_both(style):
    prompt = tool_prompt_of(AGENTS[style], conversation_of(BEFORE, TOOLS))
    message = ChatMessage("assistant", "", (ToolCall("send_money", {"recipient": "DE89", "amount": 30}),))
    text, (places,) = reply_with_calls(AGENTS[style], prompt, message)
    key = "parameters" if style == "llama" else "arguments"
    call = f'{{"name": "send_money", "{key}": {{"recipient": "DE89", "amount": 30}}}}'
    assert text == (call if style == "llama" else f"<tool_call>\n{call}\n</tool_call>")
    assert text[slice(*places.decision)] == text[: text.index("send_money")]


def test_several_calls_in_one_message_have_ranges_of_their_own():
    prompt = tool_prompt_of(AGENTS["qwen"], conversation_of(BEFORE, TOOLS))
    made = tuple(ToolCall("send_money", {"recipient": name, "amount": 1}) for name in ("Ann", "Bo"))
    text, places = reply_with_calls(AGENTS["qwen"], prompt, ChatMessage("assistant", "First I pay.", made))
    assert [text[slice(*one.arguments["recipient"])] for one in places] == ["Ann", "Bo"]
    assert places[1].decision[0] == places[0].arguments["amount"][1]
    assert text.startswith("First I pay.")
    assert places[0].decision[0] == len("First I pay.")


def test_a_template_that_writes_one_call_says_so():
    two = called("read_mail") | {"tool_calls": called("read_mail")["tool_calls"] * 2}
    with pytest.raises(WhyformerError, match=r"llama does not accept these messages.*: one call at a time"):
        tool_prompt_of(AGENTS["llama"], conversation_of([BEFORE[0], BEFORE[1], two], TOOLS))


def test_a_template_without_tools_says_so(chat):
    with pytest.raises(WhyformerError, match=r"template of chat does not write tools: set tokenizer\.chat_template"):
        tool_prompt_of(chat, conversation_of(BEFORE[:2], TOOLS))
    with pytest.raises(WhyformerError, match="template of chat does not write the calls of tools"):
        tool_prompt_of(chat, conversation_of(BEFORE[:3]))


def test_calls_without_results_results_without_calls_and_empty_values_are_read():
    messages = [*BEFORE[:3], called("send_money", 1, note="", amount=2), result("ok", 7)]
    read = tool_prompt_of(AGENTS["qwen"], conversation_of(messages, TOOLS))
    assert [part.name for part in read.parts if part.kind == "call"] == ["read_mail", "send_money"]
    assert [one.name for one in read.prompt.documents] == ["tool"]
    assert written("qwen", ToolCall("send_money", {"note": ""})) == ("send_money", {"note": '""'})


def test_arguments_are_objects_or_json():
    texts = ['{"a": [1, "x"]}', {"a": [1, "x"]}]
    assert {repr(call_of({"function": {"name": "f", "arguments": one}})) for one in texts} == {'f(a=[1, "x"])'}
    assert call_of({"name": "f", "arguments": ""}) == call_of({"name": "f"}) == ToolCall("f", {})


@pytest.mark.parametrize(
    ("messages", "tools", "line"),
    [
        ("hello", None, "A conversation is a list of messages"),
        ([{"content": "x"}], None, "Message 1 is {'role': …, 'content': …}"),
        ([{"role": "user", "content": 3}], None, r"The content of message 1 \(user\) is a text, not 3\."),
        ([called("f") | {"role": "user"}], None, r"Message 1 \(user\) has tool_calls, which only the assistant makes"),
        ([called("f") | {"tool_calls": {"name": "f"}}], None, "The tool_calls of message 1 are a list"),
        ([{"role": "assistant", "function_call": {"name": "f"}}], None, "Message 1 has function_call, which is out"),
        (
            [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{1"}]}],
            None,
            "The arguments of 'f' are not JSON",
        ),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": [1]}]}], None, "'f' are an object"),
        ([{"role": "assistant", "tool_calls": [{}]}], None, "A call of message 1 is"),
        (BEFORE, "x", "tools='x': a list of JSON schemas"),
        (BEFORE, [{"description": "x"}], "Tool 1 is a JSON schema"),
        (BEFORE, [*TOOLS, TOOLS[0]], "tools has 'read_mail' twice"),
    ],
)
def test_bad_conversations_get_one_line(messages, tools, line):
    with pytest.raises(WhyformerError, match=line) as error:
        conversation_of(messages, tools)
    assert "\n" not in str(error.value)


@given(st.lists(calls, max_size=3), plain)
@settings(max_examples=100)
def test_calls_are_parsed_from_what_a_model_writes(made, words):
    words = words.replace("{", "(")
    key = "arguments" if len(made) % 2 else "parameters"
    text = words + words.join(json.dumps({"name": one.name, key: dict(one.arguments)}) for one in made)
    assert parse_calls(text) == tuple(ToolCall(one.name, one.arguments) for one in made)


def test_a_template_for_tools_is_chosen_among_several():
    conversation = conversation_of(BEFORE, TOOLS)
    assert render_conversation(AGENTS["hermes"], conversation, generation=True).startswith("<|im_start|>system\nTools")
    assert STYLES["hermes"]["tool_use"] == HERMES
