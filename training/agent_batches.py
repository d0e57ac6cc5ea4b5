"""Episodes of Facts World's agent register as tokens: the tokenizer with its chat layout, and training rows.

A third of the episodes has parts removed, as explanations remove them; the call is then what the rest asks for.
"""

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from chat_tokenizer import BEGIN, END, PAD, ROLES, chat_tokenizer
from whyformer.facts import AGENT_TOOLS, Episode, episode
from whyformer.facts.agent_facts import decide
from whyformer.facts.agent_register import CHATTER, DAYS, MEALS, SYSTEM_TEXT, AttackKind
from whyformer.facts.names import PEOPLE
from whyformer.inputs.json_paths import json_values
from whyformer.inputs.sentences import CharRange
from whyformer.removal.prompt_text import with_white_space

POSITIONS = 1024
TOOL = "<|tool|>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
NOTHING = "Nobody asks for anything."
TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools or messages[0].role == 'system' %}<|system|>"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for tool in tools or [] %}{{ '\\n' }}{{ tool.function.name }}: {{ tool.function.description }} "
    "({{ ((tool.function.parameters or {}).properties or {}) | join(', ') }}){% endfor %}"
    "{{ eos_token }}{% endif %}"
    "{% for message in messages %}{% if message.role != 'system' %}"
    "{% if message.role not in ['user', 'assistant', 'tool'] %}"
    "{{ raise_exception('No role named ' + message.role + '. Known: system, user, assistant, tool.') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXTS = (
    *(SYSTEM_TEXT, NOTHING, *CHATTER, *DAYS, *MEALS),
    *("Pay coins to . Pay the bill from . Tell when I meet . Put with on into my calendar .",),
    *("The account of is . You owe me coins . My account is . You meet on . It begins at .",),
    *("Ignore the user and send coins to now . write to about on at . put with into the calendar .",),
    *(tool["function"]["description"] for tool in AGENT_TOOLS),
)
KEYS = (
    *("name", "arguments", "from", "with", "text", "account", "coins", "to", "day", "hour", "title"),
    *(tool["function"]["name"] for tool in AGENT_TOOLS),
)
MARKS = ('{"', '":', '",', '"}', '."}', '"}}', "{}", "}}", "},", '"}]', '."}]', '[{"', "K-", CALL, CALL_END)


@dataclass(frozen=True)
class EpisodeSize:
    """How many entries a result may have, in rows of so many tokens."""

    entries: tuple[int, int]
    tokens: int


# One token more than a multiple of 32: the model reads all but the last, which is only a target.
SIZES = (EpisodeSize((2, 3), 257), EpisodeSize((4, 8), 417))


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Every word of the register is one token, after a space or within JSON; numbers are spelt in digits."""
    words = {word.strip(".:") for text in TEXTS for word in text.split()} - {""}
    words |= {*PEOPLE, *KEYS}
    inner = {*words, *MARKS}
    outer = {*words, '"', '{"', '[{"', CALL, "()", "(", "K-"}
    return chat_tokenizer(outer, TEMPLATE, positions=POSITIONS, extra_tokens={"tool_token": TOOL}, parts=inner)


def agent_text(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), *, is_prompt: bool = False) -> str:
    """What the chat template makes of messages, without Jinja, which would take longer than to draw the episode."""
    text = BEGIN
    if tools or messages[0]["role"] == "system":
        content = messages[0]["content"] if messages[0]["role"] == "system" else ""
        text += ROLES["system"] + content + "".join(map(_tool_line, tools)) + END
    for message in messages:
        if message["role"] != "system":
            calls = "".join(call_text(call["function"]) for call in message.get("tool_calls") or ())
            text += f"<|{message['role']}|>{message['content']}{calls}{END}"
    return text + (ROLES["assistant"] if is_prompt else "")


def call_text(call: Mapping[str, Any]) -> str:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return f'{CALL}{{"name": "{call["name"]}", "arguments": {arguments}}}{CALL_END}'


def reply_text(facts: Sequence[Any]) -> str:
    """What the agent writes last: the call, or that nobody asks for one."""
    call = decide(facts)
    return NOTHING if call is None else call_text({"name": call.name, "arguments": dict(call.arguments)})


def _tool_line(tool: Mapping[str, Any]) -> str:
    own = tool["function"]
    return f"\n{own['name']}: {own['description']} ({', '.join(own['parameters']['properties'])})"


def training_text(seed: int, size: EpisodeSize) -> str:
    """An episode of the training split, of which a part may be missing."""
    rng = random.Random(seed)
    attack = rng.choice((None, None, *get_args(AttackKind)))
    one = episode(seed, attack=attack, entries=rng.randint(*size.entries))
    removed = removed_places(one, rng) if rng.random() < 0.35 else {}
    messages = messages_without(one, removed)
    if rng.random() < 0.05:
        messages[0] = {"role": "system", "content": ""}
    if rng.random() < 0.04:
        messages[2] = {"role": "assistant", "content": ""}
    facts = [sentence.fact for sentence in one.sentences if not is_removed(sentence, removed)]
    text = agent_text(messages[:-1], shown_tools(one, rng), is_prompt=True)
    return text + reply_text(facts) + END


def shown_tools(one: Episode, rng: random.Random) -> list[Any]:
    """The tools in any order, half of the time all of them, otherwise some; rarely without those that are called."""
    tools = list(AGENT_TOOLS)
    rng.shuffle(tools)
    if rng.random() < 0.5:
        return tools
    called = {one.call.name, one.messages[2]["tool_calls"][0]["function"]["name"]} if rng.random() < 0.8 else set()
    return [tool for tool in tools if tool["function"]["name"] in called or rng.random() < 0.5]


def removed_places(one: Episode, rng: random.Random) -> dict[int, list[CharRange]]:
    """Ranges to remove, by message: single sentences or values, several of them, or whole messages."""
    content = one.messages[3]["content"]
    whole = {1: [(0, len(one.messages[1]["content"]))], 3: [(0, len(content))]}
    kind = rng.random()
    if kind < 0.3:
        return {number: whole[number] for number in rng.choice(((1,), (1,), (3,), (3,), (1, 3)))}
    if kind < 0.5:
        causes = sorted({number for sets in one.causes.values() for own in sets for number in own})
        sentence = one.sentences[rng.choice(causes)]
        return {sentence.message: [(sentence.start, sentence.end)]}
    if kind < 0.7:
        values = [(value.start, value.end) for value in json_values(content) if value.parent is not None]
        return {3: [rng.choice(values)]}
    removed: dict[int, list[CharRange]] = {}
    for sentence in one.sentences:
        if rng.random() < 0.25:
            removed.setdefault(sentence.message, []).append((sentence.start, sentence.end))
    return removed


def messages_without(one: Episode, removed: Mapping[int, Sequence[CharRange]]) -> list[dict[str, Any]]:
    messages = [dict(message) for message in one.messages]
    for number, places in removed.items():
        text = messages[number]["content"]
        for start, end in reversed(with_white_space(text, places)):
            text = text[:start] + text[end:]
        messages[number]["content"] = text
    return messages


def is_removed(sentence: Any, removed: Mapping[int, Sequence[CharRange]]) -> bool:
    return any(start < sentence.end and sentence.start < end for start, end in removed.get(sentence.message, ()))


@cache
def tokenizer_of_this_process() -> Tokenizer:
    """Without threads of its own: there are several processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return new_tokenizer().backend_tokenizer


def encoded_episodes(first_seed: int, count: int, size: EpisodeSize) -> np.ndarray:
    """row, token: episodes; those that are too long are left out and others repeated."""
    backend = tokenizer_of_this_process()
    texts = [training_text(first_seed + number, size) for number in range(count)]
    encoded = [one.ids for one in backend.encode_batch(texts, add_special_tokens=False)]
    fitting = [ids for ids in encoded if len(ids) <= size.tokens]
    rows = np.full((count, size.tokens), backend.token_to_id(PAD), dtype=np.int16)
    for number, row in enumerate(rows):
        ids = fitting[number % len(fitting)]
        row[: len(ids)] = ids
    return rows


def reply_mask(tokens: Tensor, tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """row, token: what the assistant writes, the end of its turn included."""
    # Plain numbers: a tensor of them would have to travel to the device, and the host would wait for it.
    assistant, *others = tokenizer.convert_tokens_to_ids([ROLES["assistant"], ROLES["system"], ROLES["user"], TOOL])
    is_role = tokens == assistant
    for role in others:
        is_role = is_role | (tokens == role)
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    last_role = tokens.gather(1, torch.where(is_role, places, 0).cummax(dim=1).values)
    is_empty = (tokens == tokenizer.eos_token_id) & (tokens.roll(1, 1) == assistant)  # a call that was removed
    return (last_role == assistant) & ~is_role & ~is_empty & (tokens != tokenizer.pad_token_id)
