"""The tab Response: explain a response by parts of its prompt."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whyformer.api.explain_response import explain_response
from whyformer.app.code import Code, call, command
from whyformer.app.label_tabs import DEFAULT_LABEL
from whyformer.app.limits import Limits
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, response_piece
from whyformer.app.uploads import sent_file, upload_errors
from whyformer.app.work import Work
from whyformer.errors import WhyformerError
from whyformer.inputs.read import text_of

_NAME = re.compile(r"([\w-]{1,40}): +")  # at the beginning of a document
TitledText = str | tuple[str, str]


@dataclass(frozen=True)
class ResponseInputs:
    """Inputs of the Response tab: the prompt and the response.

    Attributes:
        prompt: The question, or the whole prompt.
        documents: Documents, separated by blank lines; each may begin with its name and a colon.
        files: Uploaded text files with more documents.
        response: The response; if empty, the model writes it.
        contrast: Another response to contrast with, if not empty.
        model: The model's name; by default the first of the tab.
        method: The method's name.
    """

    prompt: str = ""
    documents: str = ""
    files: Sequence[str] = ()
    response: str = ""
    contrast: str = ""
    model: str | None = None
    method: str = DEFAULT_LABEL


def explain_exchange(work: Work, setup: Setup, exchange: ResponseInputs) -> TabView:
    """The response with the sources in the prompt for each of its sentences."""
    prompt, limits = exchange.prompt.strip(), setup.limits
    if not prompt:
        raise WhyformerError("Type a question or a prompt first, or click an example.")
    limits.check_texts(prompt, exchange.documents, exchange.response, exchange.contrast)
    limits.check_count("files", len(exchange.files), limits.documents)
    context = documents_of(exchange.documents) + [_read_document(path, limits) for path in exchange.files]
    limits.check_count("documents", len(context), limits.documents)
    texts = [text if isinstance(text, str) else text[1] for text in context]
    limits.check_texts(prompt, exchange.response, exchange.contrast, *texts)
    name, loaded_model = setup.models.name(exchange.model, "Response"), setup.models.open(exchange.model, "Response")
    method = None if exchange.method == DEFAULT_LABEL else exchange.method
    talks = bool(getattr(loaded_model.tokenizer, "chat_template", None))
    question = [{"role": "user", "content": prompt}] if talks and not context else prompt
    space = "" if talks or loaded_model.task.has_decoder else " "  # between a text and its continuation
    reply, other = (space + text.strip() if text.strip() else None for text in (exchange.response, exchange.contrast))
    work.step(0, 1, f"{loaded_model.name} {'reads' if reply else 'writes'}")
    keywords: dict[str, Any] = {"context": context or None, "contrast": other, "tokens": limits.tokens}
    result = explain_response(question, reply, loaded_model, method, **keywords)
    return replace(response_piece(result), code=_code(question, reply, name, method, keywords))


def documents_of(text: str) -> list[TitledText]:
    """Split a text into documents at blank lines, each with its name if it begins with one."""
    documents: list[TitledText] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        body = paragraph.strip()
        name = _NAME.match(body)
        if body:
            documents.append((name[1], body[name.end() :].strip()) if name else body)
    return documents


def _read_document(path: str, limits: Limits) -> TitledText:
    file = sent_file(path, "Send a text file.", limits)
    with upload_errors(file):
        return file.stem, str(text_of(file)).strip()


def _code(question: Any, response: str | None, model: str, method: str | None, keywords: Mapping[str, Any]) -> Code:
    """The call in Python and on the command line, with messages and named documents as files."""
    context, contrast = keywords["context"] or [], keywords["contrast"]
    written = call("whyformer.explain_response", question, response, model=model, method=method, **keywords)
    lines = ["import whyformer", "", f"response = {written}", 'response.save("response.html")']
    files = {f"{one[0]}.txt": one[1] for one in context if not isinstance(one, str)}
    is_chat = not isinstance(question, str)
    if is_chat:
        files["chat.json"] = json.dumps(question, ensure_ascii=False)
    typed = command(
        "response",
        *([] if is_chat else [question]),
        messages="chat.json" if is_chat else None,
        model=model,
        context=[one if isinstance(one, str) else f"{one[0]}.txt" for one in context],
        response=response,
        contrast=contrast,
        tokens=keywords["tokens"],
        method=method,
        out="response.html",
    )
    writing = [f"printf %s {shlex.quote(content)} > {shlex.quote(file)}" for file, content in files.items()]
    return Code("\n".join(lines), "\n".join([*writing, typed]))
