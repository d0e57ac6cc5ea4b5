"""What the commands print for scripts: explanations, methods and bundled models as plain data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation

if TYPE_CHECKING:
    from whyformer.methods.registry import Method


def explanation_document(explanation: Explanation, name: str) -> dict[str, Any]:
    """The explanation as `to_dict` has it, after the name of its input."""
    return {"input": name, **explanation.to_dict()}


def continuation_document(continuation: Continuation, name: str) -> dict[str, Any]:
    """The continuation as `to_dict` has it, after the name of its input."""
    return {"input": name, **continuation.to_dict()}


def method_document(method: Method) -> dict[str, Any]:
    """A method as `whyformer methods` lists it."""
    options = {name: parameter.default for name, parameter in method.options.items()}
    return {"name": method.name, "summary": method.summary, "reads": str(method.reads), "options": options}


TASKS = {
    "ForImageClassification": "labels a picture",
    "ForSequenceClassification": "labels a text",
    "ForObjectDetection": "finds objects in a picture",
    "ForQuestionAnswering": "answers a question about regions of a picture",
    "CLIPModel": "compares a picture with a text",
    "ForCausalLM": "writes the next word",
    "ForConditionalGeneration": "writes about a text",
}


def model_card(folder: Path) -> dict[str, Any]:
    """What a bundled model's files say of it, without loading it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture = (config.get("architectures") or [""])[0]
    path = folder / "README.md"
    card = path.read_text(encoding="utf-8") if path.is_file() else ""
    measured = re.search(rf"<!-- {folder.name} -->(.*)<!-- /{folder.name} -->", card, flags=re.DOTALL)
    licence = re.search(r"^## Licence\n(.*)", card, flags=re.DOTALL | re.MULTILINE)
    return {
        "name": folder.name,
        "task": next((task for name, task in TASKS.items() if architecture.endswith(name)), ""),
        "class": architecture,
        "labels": list(config.get("id2label", {}).values()),
        "data": _table(card).get("data", ""),
        "measured": _table(measured[1]) if measured else {},
        "megabytes": sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6,
        "licence": _first_sentence(licence[1]) if licence else "",
        "about": _first_sentence(card),
    }


def _table(markdown: str) -> dict[str, str]:
    """The rows of the two-column tables of a model card, below their headings."""
    rows = re.findall(r"^\| *([^|]+?) *\| *([^|]+?) *\|$", markdown, flags=re.MULTILINE)
    return {name: value for name, value in rows if value.strip() and not set(name) <= set("- :")}


def _first_sentence(markdown: str) -> str:
    """The first sentence of a model card, past its front matter and headings."""
    body = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    paragraphs = (
        " ".join(block.split()) for block in re.split(r"\n\s*\n", re.sub(r"^#.*$", "\n", body, flags=re.MULTILINE))
    )
    text = next((paragraph for paragraph in paragraphs if paragraph), "")
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
