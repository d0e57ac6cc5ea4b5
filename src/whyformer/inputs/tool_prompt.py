"""A conversation with tools as a model reads it: schemas, messages, calls and results, each with its characters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jinja2 import TemplateError

from whyformer.errors import WhyformerError, reason_of
from whyformer.inputs.chat_template import render_chat
from whyformer.inputs.conversation import ChatMessage, Conversation, ToolCall, message_document
from whyformer.inputs.prompt import (
    SEPARATOR,
    HasTokenizer,
    Message,
    Prompt,
    PromptDocument,
    check_is_question,
    moved_token,
    prompt_of,
)
from whyformer.inputs.prompt_tokens import text_tokens
from whyformer.inputs.template_slots import Alignment, Slot, TemplateMarks, align_slots

PartKind = Literal["tool schema", "message", "call"]


@dataclass(frozen=True)
class ToolPromptPart:
    """A part of a conversation with tools.

    Attributes:
        kind: "tool schema", "message" or "call".
        role: The role of its message; "tools" for a schema.
        name: The tool of a schema, call or result; otherwise empty.
        number: The index of its message or tool.
        start: Its first character in the prompt's text.
        end: The end of its range, exclusive.
        content: The text of a message before the template writes it.
        slot: Where the template writes that text.
    """

    kind: PartKind
    role: str
    name: str
    number: int
    start: int
    end: int
    content: str = ""
    slot: Slot | None = None

    def place(self, offset: int) -> int:
        """The position in the prompt's text of a character of `content`."""
        assert self.slot is not None
        return self.start + self.slot.place(self.content, offset) - self.slot.start


@dataclass(frozen=True)
class ToolPrompt:
    """A prompt, and its parts in order of the text."""

    prompt: Prompt
    parts: tuple[ToolPromptPart, ...]
    conversation: Conversation


@dataclass(frozen=True)
class _Marked:
    """A conversation with marks for its values, and the numbers of each message's and tool's."""

    conversation: Conversation
    values: tuple[Any, ...]
    contents: Mapping[int, int]
    calls: Mapping[tuple[int, int], list[int]]
    tools: Mapping[int, list[int]]
    marks: TemplateMarks


def tool_prompt_of(loaded_model: HasTokenizer, conversation: Conversation) -> ToolPrompt:
    """Render a conversation with tools by the tokenizer's chat template, and find each part in it."""
    tokenizer = loaded_model.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise WhyformerError(
            f"The tokenizer of {loaded_model.name} has no chat template for messages: set tokenizer.chat_template."
        )
    rendered = render_conversation(loaded_model, conversation, generation=True)
    marked = _marked(conversation)
    skeleton = render_conversation(loaded_model, marked.conversation, generation=True)
    alignment = align_slots(rendered, skeleton, marked.values, marked.marks)
    if alignment is None:
        raise WhyformerError(
            f"The chat template of {loaded_model.name} changes the content of messages: its tokens cannot be aligned "
            "with them."
        )
    placed = sorted(_placed(loaded_model, conversation, alignment, marked), key=lambda pair: pair[1])
    text, parts, shifts = "", [], []
    for part, (start, end) in placed:
        text += SEPARATOR if text else ""
        parts.append(replace(part, start=len(text), end=len(text) + end - start))
        shifts.append(((start, end), len(text) - start))
        text += rendered[start:end]
    tokens = text_tokens(rendered, tokenizer, add_special_tokens=False)
    prompt = Prompt(
        text,
        tuple(moved_token(token, shifts, text) for token in tokens),
        rendered,
        tuple(Message(_role(part), part.start, part.end) for part in parts),
        tuple(_documents(parts)),
        tuple(place for _, place in placed),
    )
    return ToolPrompt(prompt, tuple(parts), conversation)


def render_conversation(loaded_model: HasTokenizer, conversation: Conversation, *, generation: bool) -> str:
    """Render a conversation; arguments as objects, or as JSON for a template that wants a text."""
    tokenizer = loaded_model.tokenizer
    # An empty list chooses the template for tools where there are several.
    tools = list(conversation.tools) or ([] if isinstance(tokenizer.chat_template, Mapping) else None)
    try:
        try:
            documents = [message_document(message) for message in conversation.messages]
            return render_chat(tokenizer, documents, tools=tools, add_generation_prompt=generation)
        except TypeError:
            documents = [message_document(message, as_text=True) for message in conversation.messages]
            return render_chat(tokenizer, documents, tools=tools, add_generation_prompt=generation)
    except (TemplateError, TypeError, KeyError, AttributeError) as error:
        roles = ", ".join(message.role for message in conversation.messages)
        raise WhyformerError(
            f"The chat template of {loaded_model.name} does not accept these messages (roles: {roles}): "
            f"{reason_of(error)}"
        ) from error


def align_message(loaded_model: HasTokenizer, conversation: Conversation) -> tuple[Alignment, _Marked]:
    """Render a whole conversation, and find the content and the calls of its last message."""
    last = len(conversation.messages) - 1
    marked = _marked(conversation, only=last)
    rendered, skeleton = (
        render_conversation(loaded_model, one, generation=False) for one in (conversation, marked.conversation)
    )
    alignment = align_slots(rendered, skeleton, marked.values, marked.marks)
    numbers = [number for own in marked.calls.values() for number in own]
    if alignment is None or any(alignment.of(number) is None for number in numbers):
        raise _without_calls(loaded_model)
    return alignment, marked


def _marked(conversation: Conversation, only: int | None = None) -> _Marked:
    """The conversation, or one of its messages, with marks for contents, names and arguments."""
    document = [[message_document(message) for message in conversation.messages], list(conversation.tools)]
    marks = TemplateMarks.apart_from(json.dumps(document) + json.dumps(document, ensure_ascii=False))
    values: list[Any] = []
    contents, calls, tools = dict[int, int](), dict[tuple[int, int], list[int]](), dict[int, list[int]]()

    def mark(value: Any) -> str:
        values.append(value)
        return marks(len(values) - 1)

    messages, schemas = [], []
    for number, message in enumerate(conversation.messages):
        if only is not None and number != only:
            messages.append(message)
            continue
        if message.content.strip():
            contents[number] = len(values)
            message = replace(message, content=mark(message.content))
        own = []
        for place, call in enumerate(message.calls):
            first = len(values)
            marked_arguments = {key: mark(value) for key, value in call.arguments.items()}
            own.append(ToolCall(mark(call.name), marked_arguments, call.id))
            calls[number, place] = list(range(first, len(values)))
        messages.append(replace(message, calls=tuple(own)))
    for number, tool in enumerate(conversation.tools):
        if only is not None:
            schemas.append(tool)
            continue
        function, first = dict(tool["function"]), len(values)
        function["name"] = mark(function["name"])
        if str(function.get("description") or "").strip():
            function["description"] = mark(str(function["description"]))
        tools[number] = list(range(first, len(values)))
        schemas.append({**tool, "function": function})
    return _Marked(Conversation(tuple(messages), tuple(schemas)), tuple(values), contents, calls, tools, marks)


def _placed(
    loaded_model: HasTokenizer, conversation: Conversation, alignment: Alignment, marked: _Marked
) -> Iterator[tuple[ToolPromptPart, tuple[int, int]]]:
    """Each part with its range in the rendered text."""
    for number, own in marked.tools.items():
        if alignment.of(own[0]) is None:
            raise WhyformerError(
                f"The chat template of {loaded_model.name} does not write tools: set tokenizer.chat_template to one "
                "that does, or describe the tools in the system message."
            )
        name = conversation.tools[number]["function"]["name"]
        yield ToolPromptPart("tool schema", "tools", name, number, 0, 0), alignment.enclosing(own)
    for number, message in enumerate(conversation.messages):
        if number in marked.contents:
            slot = alignment.of(marked.contents[number])
            if slot is not None:
                part = ToolPromptPart("message", message.role, message.name, number, 0, 0, message.content, slot)
                yield part, (slot.start, slot.end)
            elif not message.calls:  # some templates write calls alone
                raise WhyformerError(
                    f"The chat template of {loaded_model.name} leaves out or changes the content of message "
                    f"{number + 1} ({message.role}): its tokens cannot be aligned with it."
                )
        for place, call in enumerate(message.calls):
            if any(alignment.of(one) is None for one in marked.calls[number, place]):
                raise _without_calls(loaded_model)
            part = ToolPromptPart("call", message.role, call.name, number, 0, 0)
            yield part, alignment.enclosing(marked.calls[number, place])


def _without_calls(loaded_model: HasTokenizer) -> WhyformerError:
    return WhyformerError(
        f"The chat template of {loaded_model.name} does not write the calls of tools: set tokenizer.chat_template to "
        "one that does."
    )


def _role(part: ToolPromptPart) -> str:
    if part.kind == "message":
        return part.role
    return f"{part.kind}: {part.name}"


def _documents(parts: Sequence[ToolPromptPart]) -> Iterator[PromptDocument]:
    """Results of tools as documents, named by their tools, and numbered if there are several of one."""
    results = [part for part in parts if part.kind == "message" and part.role == "tool"]
    totals, seen = Counter(part.name for part in results), Counter[str]()
    for part in results:
        seen[part.name] += 1
        name = part.name or "tool"
        yield PromptDocument(f"{name} {seen[part.name]}" if totals[part.name] > 1 else name, part.start, part.end)


@dataclass(frozen=True)
class CallPlaces:
    """The position of a call in the text of a reply.

    Attributes:
        call: The call.
        decision: What is written before the name: that a tool is called at all.
        name: The name.
        arguments: The value of each argument; without its quotes if it is a text.
    """

    call: ToolCall
    decision: tuple[int, int]
    name: tuple[int, int]
    arguments: Mapping[str, tuple[int, int]]


def reply_with_calls(
    loaded_model: HasTokenizer, prompt: ToolPrompt, message: ChatMessage
) -> tuple[str, tuple[CallPlaces, ...]]:
    """The text that the template writes for a message with calls after a prompt, and the positions of its calls."""
    before = prompt.conversation
    whole = Conversation((*before.messages, message), before.tools)
    alignment, marked = align_message(loaded_model, whole)
    mark = marked.marks(len(marked.values))
    answered = Conversation((*before.messages, ChatMessage("assistant", mark)), before.tools)
    head, _, end = render_conversation(loaded_model, answered, generation=False).rpartition(mark)
    rendered, base = alignment.rendered, head.rstrip()
    if not rendered.startswith(base):
        raise WhyformerError(
            f"The chat template of {loaded_model.name} writes calls after other words than it writes answers: they "
            "cannot be aligned with the prompt."
        )
    opening = prompt.prompt.rendered
    space = opening[len(opening.rstrip()) :]
    start = len(base) + len(space) * rendered.startswith(space, len(base))
    text = rendered[start:].removesuffix(end).rstrip()
    last = len(before.messages)
    content = alignment.of(marked.contents[last]) if last in marked.contents else None
    places, reached = [], 0 if content is None else content.end - start
    for place, call in enumerate(message.calls):
        *values, name = (alignment.of(number) for number in marked.calls[last, place])
        assert name is not None
        arguments = {
            key: _with_quotes(text, slot.start - start, slot.end - start)
            for key, slot in zip(call.arguments, values, strict=True)
            if slot is not None
        }
        own = name.start - start, name.end - start
        places.append(CallPlaces(call, (min(reached, own[0]), own[0]), own, arguments))
        reached = max([own[1], *(stop for _, stop in arguments.values())])
    return text, tuple(places)


def any_prompt_of(
    loaded_model: HasTokenizer, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None
) -> Prompt:
    """The prompt of a conversation with tools, or of anything that `prompt_of` takes."""
    if not isinstance(prompt, Conversation):
        return prompt_of(loaded_model, prompt, context, layout)
    check_is_question(context)
    return tool_prompt_of(loaded_model, prompt).prompt


def reply_text(loaded_model: HasTokenizer, prompt: Any, reply: Any) -> Any:
    """A reply as text if it is a message with calls; others are unchanged."""
    if not isinstance(reply, ChatMessage):
        return reply
    return reply_with_calls(loaded_model, tool_prompt_of(loaded_model, prompt), reply)[0]


def _with_quotes(text: str, start: int, end: int) -> tuple[int, int]:
    """The range of a value; an empty text includes its quotes."""
    return (start, end) if start < end else (max(0, start - 1), min(len(text), end + 1))
