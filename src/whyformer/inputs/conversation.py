"""A conversation with tools, as the conventions of OpenAI and Hugging Face write it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.files import parse_json

ROLES_OF_RESULTS = ("tool", "function", "ipython")
OUTDATED = "function_call"  # the field of a single call in OpenAI's first convention


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Args:
        name: The name of the tool.
        arguments: Its arguments by name: JSON values.
        id: What its result refers to, if anything does.

    Example:
        >>> whyformer.ToolCall("send_money", {"recipient": "DE89", "amount": 30})
        send_money(recipient="DE89", amount=30)
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""

    def __repr__(self) -> str:
        arguments = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.arguments.items())
        return f"{self.name}({', '.join(arguments)})"


@dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation with tools.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: Its text; may be empty beside calls.
        calls: The calls that it makes.
        name: The tool whose result it is.
        call_id: The call whose result it is.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    call_id: str = ""


@dataclass(frozen=True)
class Conversation:
    """Messages, and the schemas of the tools that the model may call."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def tool_names(self) -> list[str]:
        """The names of its tools."""
        return [tool["function"]["name"] for tool in self.tools]


def has_tools(prompt: Any, tools: Any = None) -> bool:
    """Whether a prompt is a conversation with tools: schemas, calls or results."""
    messages = prompt if isinstance(prompt, (list, tuple)) else ()
    return bool(tools) or any(
        isinstance(one, Mapping)
        and (bool(one.get("tool_calls")) or bool(one.get(OUTDATED)) or one.get("role") in ROLES_OF_RESULTS)
        for one in messages
    )


def conversation_of(messages: Any, tools: Any = None) -> Conversation:
    """Validate messages and tool schemas."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise WhyformerError(f"A conversation is a list of messages {{'role': …, 'content': …}}, not {messages!r:.60}.")
    if not isinstance(tools, (list, tuple, type(None))):
        raise WhyformerError(f"tools={tools!r:.60}: a list of JSON schemas.")
    checked = [_message(number, message) for number, message in enumerate(messages, 1)]
    schemas = tuple(_schema(number, tool) for number, tool in enumerate(tools or (), 1))
    names = [schema["function"]["name"] for schema in schemas]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise WhyformerError(f"tools has {twice!r} twice: give each tool once.")
    return Conversation(tuple(_named(checked)), schemas)


def call_of(call: Any, whose: str = "call") -> ToolCall:
    """Read a call: {"name", "arguments"}, by itself or as the "function" of one, with arguments as object or text."""
    if isinstance(call, ToolCall):
        return call
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(name, str) or not name.strip():
        raise WhyformerError(f"{whose} is {{'name': …, 'arguments': …}}, not {call!r:.60}.")
    arguments = inner.get("arguments", inner.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments) if arguments.strip() else {}
        except ValueError as error:
            raise WhyformerError(f"The arguments of {name!r} are not JSON ({error}): {arguments!r:.60}.") from error
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise WhyformerError(f"The arguments of {name!r} are an object with names, not {arguments!r:.60}.")
    own = call.get("id")
    return ToolCall(name, dict(arguments), own if isinstance(own, str) else "")


def parse_calls(text: str) -> tuple[ToolCall, ...]:
    """The calls in a text that a model wrote: JSON objects with a name and arguments or parameters."""
    decoder, calls, place = json.JSONDecoder(), list[ToolCall](), text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            value, end = None, place + 1
        is_call = isinstance(value, dict) and isinstance(value.get("name"), str)
        if is_call and isinstance(value.get("arguments", value.get("parameters")), (dict, str)):
            calls.append(call_of(value))
        else:
            end = place + 1
        place = text.find("{", end)
    return tuple(calls)


def message_document(message: ChatMessage, *, as_text: bool = False) -> dict[str, Any]:
    """A message as templates take it; `as_text` writes arguments as JSON for templates that want a string."""
    document: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        document["tool_calls"] = [_call_document(call, as_text=as_text) for call in message.calls]
    optional = {"name": message.name, "tool_call_id": message.call_id}
    return document | {key: value for key, value in optional.items() if value}


def _call_document(call: ToolCall, *, as_text: bool) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False) if as_text else dict(call.arguments)
    own = {"id": call.id} if call.id else {}
    return {**own, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _message(number: int, message: Any) -> ChatMessage:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str) or not role:
        raise WhyformerError(f"Message {number} is {{'role': …, 'content': …}}, not {message!r:.60}.")
    if message.get(OUTDATED):
        raise WhyformerError(f"Message {number} has {OUTDATED}, which is outdated: write tool_calls=[…] instead.")
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)):
        raise WhyformerError(f"The tool_calls of message {number} are a list, not {calls!r:.60}.")
    if calls and role != "assistant":
        raise WhyformerError(f"Message {number} ({role}) has tool_calls, which only the assistant makes.")
    content = _text(number, role, message.get("content"), is_optional=bool(calls))
    name, call_id = (message.get(key) for key in ("name", "tool_call_id"))
    return ChatMessage(
        "tool" if role in ROLES_OF_RESULTS else role,
        content,
        tuple(call_of(call, f"A call of message {number}") for call in calls),
        name if isinstance(name, str) else "",
        call_id if isinstance(call_id, str) else "",
    )


def _text(number: int, role: str, content: Any, *, is_optional: bool) -> str:
    """The text of a message: a text, or a list of texts."""
    if content is None and (is_optional or role in ROLES_OF_RESULTS):
        return ""
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts: list[Any] = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise WhyformerError(f"The content of message {number} ({role}) is a text, not {content!r:.60}.")
    return "".join(map(str, texts))


def _named(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Results with the name of their tool, known by the call that they answer."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.calls if call.id}
        is_unnamed = message.role == "tool" and not message.name
        yield replace(message, name=names.get(message.call_id, "")) if is_unnamed else message


def _schema(number: int, tool: Any) -> Mapping[str, Any]:
    """A schema as templates take it: {"type": "function", "function": {…}}."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise WhyformerError(
            f"Tool {number} is a JSON schema {{'name': …, 'description': …, 'parameters': …}}, not {tool!r:.60}."
        )
    return {"type": "function", "function": {"description": "", "parameters": {"type": "object", "properties": {}}}} | {
        "function": {**function, "parameters": function.get("parameters") or {"type": "object", "properties": {}}}
    }


def with_reply(prompt: Any, response: Any, tools: Any = None) -> tuple[Any, Any]:
    """A prompt with tools as a Conversation, and a response that calls one as a message; others are unchanged.

    Without a response, a conversation that ends with a call is explained up to there.
    """
    if not has_tools(prompt, tools):
        return prompt, response
    conversation = conversation_of(prompt, tools)
    messages = conversation.messages
    if response is None and messages[-1].calls:
        return replace(conversation, messages=messages[:-1]), messages[-1]
    return conversation, reply_message(response) if isinstance(response, (Mapping, ToolCall)) else response


def reply_message(reply: Any) -> ChatMessage:
    """The message of a reply: a whole message, or a call."""
    if isinstance(reply, Mapping) and "role" in reply:
        return conversation_of([reply]).messages[0]
    return ChatMessage("assistant", "", (call_of(reply),))
