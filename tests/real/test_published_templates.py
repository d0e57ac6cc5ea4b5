"""Published chat templates, where they are on this machine: names and arguments are found exactly, or refused.

None of them is in this repository. That of Qwen2.5-Coder comes with its model (`make real`). The others are in the
source package of llama-cpp-python: unpack it (`pip download llama-cpp-python==0.3.36 --no-deps --no-binary :all:`) and
copy vendor/llama.cpp/models/templates to the folder `templates` beside that of the real models.
"""

import copy
import json
import re

import pytest

from real_models import model_folder
from tiny_agents import TOOLS, agent, called, result
from whyformer.errors import WhyformerError
from whyformer.inputs.conversation import Conversation, conversation_of
from whyformer.inputs.tool_prompt import reply_with_calls, tool_prompt_of
from whyformer.models.loading import LoadedModel

QWEN = "qwen2.5-coder-1.5b-instruct"
TEMPLATES = model_folder(QWEN).parents[1] / "templates"
NAMED = (
    "Qwen-Qwen2.5-7B-Instruct",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
)
EVERY = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
FEWEST_EXACT = 40  # of all published templates
SYSTEM = {"role": "system", "content": "Be careful."}
ASKED = {"role": "user", "content": "Pay the bill of Zoë."}
MAIL = '[{"from": "Ann", "body": "Pay 30 to DE89.\\nThanks!"}]'
ARGUMENTS = {
    "texts and numbers": {"recipient": 'Zoë "Z" 東', "amount": 30},
    "nested": {"recipient": {"iban": ["DE89", {"bank": "Ä"}]}, "amount": [1, 2.5, None, True]},
    "none": {},
}


@pytest.fixture(scope="module")
def tiny():
    return agent("qwen")


def model_with(tiny, name):
    place = model_folder(QWEN) / "chat_template.jinja" if name == QWEN else TEMPLATES / f"{name}.jinja"
    if not place.is_file():
        pytest.skip(f"{place} is not on this machine")
    tokenizer = copy.deepcopy(tiny.tokenizer)
    tokenizer.chat_template = place.read_text(encoding="utf-8")
    return LoadedModel(tiny.model, tokenizer, name)


def places(model, messages):
    """The prompt, the text of the reply, and where its calls stand."""
    whole = conversation_of(messages, TOOLS)
    prompt = tool_prompt_of(model, Conversation(whole.messages[:-1], whole.tools))
    return prompt, *reply_with_calls(model, prompt, whole.messages[-1])


def values(text, place):
    """The values of a call as they are written, read again."""
    written = {name: text[slice(*own)] for name, own in place.arguments.items()}
    return {name: read(value) for name, value in written.items()}


def read(value):
    for text in (value, f'"{value}"', value.replace("'", '"')):
        try:
            return json.loads(text)
        except ValueError:
            continue
    return value


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("system", [[SYSTEM], []], ids=["system", "no system"])
@pytest.mark.parametrize("name", [QWEN, *NAMED])
def test_names_arguments_and_contents_are_found_exactly(tiny, name, system, arguments):
    model = model_with(tiny, name)
    messages = [*system, ASKED, called("read_mail"), result(MAIL), called("send_money", 1, **arguments)]
    prompt, text, (place,) = places(model, messages)
    assert text[slice(*place.name)] == "send_money"
    assert values(text, place) == arguments
    assert prompt.prompt.rendered + text == prompt.prompt.rendered + text.strip()
    kinds = [(one.kind, one.role) for one in prompt.parts]
    assert kinds.count(("tool schema", "tools")) == len(TOOLS)
    (mail,) = (one for one in prompt.parts if one.role == "tool")
    end = len('[{"from": "Ann", "body": "Pay 30')
    written = prompt.prompt.text[mail.start : mail.place(end)]
    assert written in (MAIL[:end], json.dumps(MAIL)[1:-1][: len(written)])


@pytest.mark.parametrize("name", [QWEN, *NAMED])
def test_several_calls_and_a_missing_result_are_right_or_one_line(tiny, name):
    model = model_with(tiny, name)
    two = called("send_money", 0, recipient="A", amount=1)
    two["tool_calls"] += called("send_money", 1, recipient="B", amount=2)["tool_calls"]
    try:
        _, text, own = places(model, [ASKED, two])
        assert [values(text, one)["recipient"] for one in own] == ["A", "B"]
    except WhyformerError as error:
        assert re.search(r"^[^\n]*(one call|single tool)[^\n]*$", str(error))  # noqa: PT017
    _, text, (place,) = places(model, [ASKED, called("read_mail"), called("send_money", 1, recipient="A", amount=1)])
    assert values(text, place) == {"recipient": "A", "amount": 1}


def test_every_published_template_is_read_exactly_or_refused_in_one_line(tiny):
    if not EVERY:
        pytest.skip(f"{TEMPLATES} is not on this machine")
    exact, refused = [], []
    for name in EVERY:
        model = model_with(tiny, name)
        messages = [
            SYSTEM,
            ASKED,
            called("read_mail"),
            result(MAIL),
            called("send_money", 1, recipient="DE89", amount=30),
        ]
        try:
            _, text, (place,) = places(model, messages)
        except WhyformerError as error:
            refused.append(str(error))
        else:
            assert text[slice(*place.name)] == "send_money", name
            assert values(text, place) == {"recipient": "DE89", "amount": 30}, name
            exact.append(name)
    assert not [line for line in refused if "\n" in line]
    assert set(NAMED) <= set(exact)
    assert len(exact) >= FEWEST_EXACT, refused
