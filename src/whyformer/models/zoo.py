"""The bundled models, described by their files without loading them."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

ZOO = Path(str(files("whyformer"))) / "zoo"
TASKS = {
    "ForImageClassification": "labels a picture",
    "ForSequenceClassification": "labels a text",
    "ForObjectDetection": "finds objects in a picture",
    "ForQuestionAnswering": "answers a question about regions of a picture",
    "CLIPModel": "compares a picture with a text",
    "ForCausalLM": "writes the next word",
    "LlavaForConditionalGeneration": "writes about a picture",
    "ForConditionalGeneration": "writes about a text",
}


def bundled() -> list[str]:
    """Names of the bundled models."""
    return sorted(folder.name for folder in ZOO.iterdir() if (folder / "config.json").is_file()) if ZOO.is_dir() else []


def bundled_folder(name: str) -> Path:
    """Folder of a bundled model."""
    return ZOO / name


def model_card(folder: Path) -> dict[str, Any]:
    """Describe a bundled model by its files, without loading it."""
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
    """The rows of a model card's two-column tables."""
    rows = re.findall(r"^\| *([^|]+?) *\| *([^|]+?) *\|$", markdown, flags=re.MULTILINE)
    return {name: value for name, value in rows if value.strip() and not set(name) <= set("- :")}


def _first_sentence(markdown: str) -> str:
    """The first sentence of a model card, after its front matter and headings."""
    body = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    paragraphs = (
        " ".join(block.split()) for block in re.split(r"\n\s*\n", re.sub(r"^#.*$", "\n", body, flags=re.MULTILINE))
    )
    text = next((paragraph for paragraph in paragraphs if paragraph), "")
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
