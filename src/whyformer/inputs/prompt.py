"""A prompt as written and as the model reads it: a text, chat messages, or a question about documents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import Any, Protocol

from jinja2 import TemplateError

from whyformer.errors import WhyformerError, reason_of
from whyformer.inputs.chat_template import render_chat
from whyformer.inputs.prompt_tokens import Token, text_tokens
from whyformer.inputs.read import text_of
from whyformer.inputs.sentences import CharRange

LAYOUT = "{documents}\n\n{question}"
SEPARATOR = "\n\n"  # between documents, and between messages in a prompt's text


class HasTokenizer(Protocol):
    """A loaded model, or the tokenizer of a served one, and its name in errors."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Message:
    """A message of a conversation: its role, and its range in the prompt's text."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class PromptDocument:
    """A document of a prompt: its name, and its range in the prompt's text, name included."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class PromptRegion:
    """A range of a prompt that no sentence crosses, and the document or role it belongs to."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """The input of a model before it responds.

    Attributes:
        text: The text as written, or the contents of the messages, separated by blank lines.
        tokens: The tokens that the model reads, each with its range of `text`; tokens of a chat template and other
            special tokens have an empty range.
        rendered: The text that is tokenized, chat template included.
        messages: The messages of a conversation, in order.
        documents: The documents of a question, or results of tools, in order.
        places: In a conversation with tools, where each message stands in `rendered`.
    """

    text: str
    tokens: tuple[Token, ...]
    rendered: str
    messages: tuple[Message, ...] = ()
    documents: tuple[PromptDocument, ...] = ()
    places: tuple[CharRange, ...] = ()

    @property
    def ids(self) -> list[int]:
        """The token ids."""
        return [token.id for token in self.tokens]

    @property
    def regions(self) -> tuple[PromptRegion, ...]:
        """The text split at the ends of messages and documents, without parts that are only white space."""
        parts: list[Message | PromptDocument] = [*self.messages, *self.documents]
        cuts = sorted({0, len(self.text), *(edge for part in parts for edge in (part.start, part.end))})
        return tuple(
            PromptRegion(self.name_at(start), start, end)
            for start, end in pairwise(cuts)
            if self.text[start:end].strip()
        )

    def name_at(self, place: int) -> str:
        """The document of a character, or else the role of its message; empty if it has neither."""
        document, message = (_part_at(place, parts) for parts in (self.documents, self.messages))
        return document.name if document is not None else "" if message is None else message.role


def _part_at(place: int, parts: Sequence[Any]) -> Any:
    number = bisect_right([part.start for part in parts], place) - 1
    return parts[number] if number >= 0 and place < parts[number].end else None


def prompt_of(
    loaded_model: HasTokenizer, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None
) -> Prompt:
    """Tokenize a text, chat messages, or a question about documents (`context`) formatted by `layout`.

    A layout is a text with {documents} and {question}. If the tokenizer has a chat template, a question about
    documents is one message of the user.
    """
    tokenizer = loaded_model.tokenizer
    if tokenizer is None:
        raise WhyformerError(f"{loaded_model.name} came without a tokenizer: pass processor=….")
    if isinstance(prompt, (list, tuple)):
        check_is_question(context)
        return _chat_prompt(loaded_model, [_checked_message(message) for message in prompt])
    text, documents = _formatted(prompt, context, layout)
    if documents and getattr(tokenizer, "chat_template", None):
        whole = _chat_prompt(loaded_model, [{"role": "user", "content": text}])
        return replace(whole, documents=documents_within(whole.text, text, documents))
    return Prompt(text, text_tokens(text, tokenizer, add_special_tokens=True), text, documents=documents)


def untokenized_prompt(prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None) -> Prompt:
    """A text, or a question about documents, for a server that tokenizes it: its tokens are not known."""
    text, documents = _formatted(prompt, context, layout)
    return Prompt(text, (), text, documents=documents)


def _formatted(
    prompt: Any, context: Sequence[Any] | None, layout: str | None
) -> tuple[str, tuple[PromptDocument, ...]]:
    """The text of a prompt, or of a question about documents, and where the documents stand in it."""
    if isinstance(prompt, str) and not prompt.strip():
        raise WhyformerError("The prompt is empty: give a text, chat messages, or a question with context=[…].")
    text = str(text_of(prompt)) if isinstance(prompt, (str, Path)) else _refuse(prompt)
    if context is None:
        check_has_no_layout(layout)
        return text, ()
    return format_prompt(text, context, LAYOUT if layout is None else layout)


def documents_within(kept: str, text: str, documents: Sequence[PromptDocument]) -> tuple[PromptDocument, ...]:
    """Shift documents to their ranges in the text that a template kept, which strips only white space."""
    taken, last = text.index(kept), len(kept)
    return tuple(PromptDocument(one.name, max(0, one.start - taken), min(last, one.end - taken)) for one in documents)


def remove_ranges(prompt: Prompt, places: Iterable[CharRange]) -> str | list[dict[str, str]]:
    """The argument of `prompt_of` for the same prompt with these ranges of its text removed."""
    removed = sorted(places)

    def rest(start: int, end: int) -> str:
        kept = []
        for first, last in removed:
            if first < end and last > start:
                kept.append(prompt.text[start : max(start, first)])
                start = max(start, last)
        return "".join((*kept, prompt.text[start:end]))

    if not prompt.messages:
        return rest(0, len(prompt.text))
    return [{"role": message.role, "content": rest(message.start, message.end)} for message in prompt.messages]


def check_is_question(context: Sequence[Any] | None) -> None:
    """Raise if documents are given with messages."""
    if context is not None:
        raise WhyformerError("context goes with a question, not with messages: put the documents into a message.")


def check_has_no_layout(layout: str | None) -> None:
    """Raise if a layout is given without documents."""
    if layout is not None:
        raise WhyformerError("layout says where the documents of context=[…] go: give some, or leave layout out.")


def format_prompt(question: str, context: Sequence[Any], layout: str) -> tuple[str, tuple[PromptDocument, ...]]:
    """Format a question about documents; return the text, and the range of each document in it."""
    if isinstance(context, (str, Path, Mapping)):
        raise WhyformerError(f"context={context!r:.40}: a list of documents. For one, give context=[{context!r:.40}].")
    named = [_checked_document(number, document) for number, document in enumerate(context, 1)]
    if not named:
        raise WhyformerError("context=[] has no document: give at least one, or leave it out.")
    pieces = _checked_layout(layout)
    text, documents = "", []
    for words, field in pieces:
        text += words
        if field == "question":
            text += question
        elif field == "documents":
            for number, (name, content) in enumerate(named):
                text += SEPARATOR if number else ""
                documents.append(PromptDocument(name, len(text), len(text) + len(content)))
                text += content
    return text, tuple(documents)


def _checked_layout(layout: str) -> list[tuple[str, str | None]]:
    try:
        pieces = [(words, field) for words, field, _, _ in Formatter().parse(layout)]
    except (TypeError, ValueError):
        pieces = []
    if sorted(field for _, field in pieces if field is not None) != ["documents", "question"]:
        raise WhyformerError(f"layout={layout!r:.60}: a text with {{documents}} and {{question}}, each once.")
    return pieces


def unnamed_document(number: int) -> str:
    """The name of a document that was given without one."""
    return f"document {number}"


def _checked_document(number: int, document: Any) -> tuple[str, str]:
    """The name of a document and its text in the prompt, which starts with the name if one was given."""
    if isinstance(document, str):
        name, text, shown = unnamed_document(number), document, document
    else:
        if isinstance(document, Mapping) and {"name", "text"} <= set(document):
            document = (document["name"], document["text"])
        if not (isinstance(document, (tuple, list)) and len(document) == 2 and all(map(_is_text, document))):
            raise WhyformerError(
                f"Document {number} of context is a text, (name, text) or {{'name': …, 'text': …}}, "
                f"not {document!r:.40}."
            )
        name, text = document
        shown = f"{name}: {text}"
    if not text.strip():
        raise WhyformerError(f"The document {name!r} is empty: leave it out, or give its text.")
    return name, shown


def _checked_message(message: Any) -> dict[str, Any]:
    is_message = isinstance(message, Mapping) and all(_is_text(message.get(key)) for key in ("role", "content"))
    if not is_message:
        raise WhyformerError(f"A message is {{'role': …, 'content': …}}, both texts, not {message!r:.60}.")
    return dict(message)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _refuse(prompt: Any) -> str:
    kind = type(prompt).__name__
    raise WhyformerError(f"A prompt is a text, a Path to one, or a list of chat messages, not {kind} {prompt!r:.40}.")


def _chat_prompt(loaded_model: HasTokenizer, messages: list[dict[str, Any]]) -> Prompt:
    """Render a conversation by the tokenizer's chat template, and align its tokens with the messages."""
    if not any(message["content"].strip() for message in messages):
        raise WhyformerError("The prompt is empty: give at least one message with content.")
    if not getattr(loaded_model.tokenizer, "chat_template", None):
        raise WhyformerError(
            f"The tokenizer of {loaded_model.name} has no chat template for messages: give a text, or set "
            "tokenizer.chat_template."
        )

    def render(contents: Sequence[str]) -> str:
        filled = [message | {"content": content} for message, content in zip(messages, contents, strict=True)]
        return render_messages(loaded_model, filled)

    roles, contents = ([message[key] for message in messages] for key in ("role", "content"))
    return align_with_contents(loaded_model, roles, contents, render, add_special_tokens=False)


def align_with_contents(
    loaded_model: HasTokenizer,
    roles: Sequence[str],
    contents: Sequence[str],
    render: Callable[[Sequence[str]], str],
    *,
    add_special_tokens: bool,
) -> Prompt:
    """Build a prompt from contents, each with a role, that a template renders as one text."""
    rendered = render(contents)
    places = _content_places(loaded_model, roles, contents, render)
    text, parts = "", []
    for role, (start, end) in zip(roles, places, strict=True):
        text += SEPARATOR if text else ""
        parts.append(Message(role, len(text), len(text) + end - start))
        text += rendered[start:end]
    tokens = text_tokens(rendered, loaded_model.tokenizer, add_special_tokens=add_special_tokens)
    shifts = [(place, part.start - place[0]) for place, part in zip(places, parts, strict=True)]
    return Prompt(text, tuple(moved_token(token, shifts, text) for token in tokens), rendered, tuple(parts))


def render_messages(loaded_model: HasTokenizer, messages: list[dict[str, Any]]) -> str:
    """Render messages by the tokenizer's chat template, up to where the response begins."""
    try:
        return render_chat(loaded_model.tokenizer, messages)
    except (TemplateError, TypeError, KeyError) as error:
        roles = ", ".join(message["role"] for message in messages)
        raise WhyformerError(
            f"The chat template of {loaded_model.name} does not accept these messages (roles: {roles}): "
            f"{reason_of(error)}"
        ) from error


def _content_places(
    loaded_model: HasTokenizer, roles: Sequence[str], contents: Sequence[str], render: Callable[[Sequence[str]], str]
) -> list[CharRange]:
    """Find where a template inserts each content, which it may strip of white space.

    Contents may resemble the template's own words, so the template is first rendered with unique marks.
    """
    rendered, marks = render(contents), [f"\ue000{number}\ue001" for number in range(len(contents))]
    skeleton = render(marks)
    places, place = [], 0
    for number, (mark, content) in enumerate(zip(marks, contents, strict=True)):
        words, is_there, skeleton = skeleton.partition(mark)
        place += len(words)
        following = skeleton.partition(marks[number + 1])[0] if number + 1 < len(marks) else skeleton
        versions = (content, content.rstrip(), content.lstrip(), content.strip())
        version = next((one for one in versions if rendered.startswith(one + following, place)), None)
        if not is_there or version is None:
            raise WhyformerError(
                f"The chat template of {loaded_model.name} leaves out or changes the content of message {number + 1} "
                f"({roles[number]}): its tokens cannot be aligned with it."
            )
        places.append((place, place + len(version)))
        place += len(version)
    return places


def moved_token(token: Token, shifts: Sequence[tuple[CharRange, int]], text: str) -> Token:
    """Map a token of the rendered text to the text as written; tokens of the template become special."""
    before = 0
    for (start, end), shift in shifts:
        if max(start, token.start) < min(end, token.end):
            first, last = max(start, token.start) + shift, min(end, token.end) + shift
            return Token(token.id, text[first:last], first, last, token.is_special)
        if end <= token.start:
            before = end + shift
    return Token(token.id, token.text, before, before, is_special=True)
