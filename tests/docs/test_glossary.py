"""The glossary's words are the ones in use, and their variants are not."""

import ast
import re
from pathlib import Path

import pytest
from readability import VARIANTS

ROOT = Path(__file__).parents[2]
SOURCE, GLOSSARY = ROOT / "src" / "whyformer", ROOT / "docs" / "concepts" / "glossary.md"
PAGES = [*sorted({*(ROOT / "docs").rglob("*.md")} - {GLOSSARY}), ROOT / "README.md"]
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "zoo" not in path.parts)


def words() -> list[str]:
    """The words of the first two tables: the third has letters."""
    text = GLOSSARY.read_text(encoding="utf-8").partition("Letters of the formulas")[0]
    rows = re.findall(r"^\| ([^|]+?) \| ", text, flags=re.MULTILINE)
    return [word for row in rows if row not in ("word", "---") for word in row.split(", ")]


def strings(path: Path) -> list[str]:
    """Docstrings and messages of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [" ".join(value.split()) for value in values if isinstance(value, str) and " " in value]


def test_words_are_in_order_and_explained_once():
    main = GLOSSARY.read_text(encoding="utf-8").partition("Measurements and abbreviations")[0]
    listed = re.findall(r"^\| ([^|]+?) \| ", main, flags=re.MULTILINE)[2:]
    assert listed == sorted(set(listed), key=str.casefold)


@pytest.mark.parametrize("word", words())
def test_a_word_of_the_glossary_is_used_as_spelled(word):
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?:s|es|d|ed)?(?!\w)", re.IGNORECASE)
    files = [path.read_text(encoding="utf-8") for path in PAGES] + [" ".join(strings(path)) for path in MODULES]
    assert sum(bool(pattern.search(text)) for text in files) >= 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_page_or_message_uses_a_variant(variant):
    pattern = re.compile(rf"\b(?:{variant})s?\b(?!`)", re.IGNORECASE)
    used = [f"{path.name}: {text}" for path in MODULES for text in strings(path) if pattern.search(text)]
    used += [
        path.name for path in PAGES if pattern.search(re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.S))
    ]
    assert not used, f"write {VARIANTS[variant]!r}"
