"""Sentences that are too long, and words of ours that readers stumble over: pages, docstrings, messages.

python docs/readability.py               # how many of each, beside those at the beginning and the most allowed
python docs/readability.py docs/guides   # list those of some pages or modules
python docs/readability.py --save        # lower the ceiling to what is there now
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "docs" / "readability.toml"
MOST_WORDS = 30
LEAST_SPACES = 3  # in a string that is a message
# Made by docs/tables.py as a whole: their words are those of docs/method_pages.toml, of docstrings.
MADE = ("docs/methods/", "docs/results/models/", "docs/api/cli.md")
METHODS_INDEX = "docs/methods/index.md"

# A variant, and the word of the glossary to write instead: none is left.
VARIANTS = {
    r"heat map": "heatmap",
    r"relevancy|relevancies": "relevance",
    r"saliency map|importance score": "score",
    r"sub-?word": "word piece",
    r"vision tower": "image tower",
    r"super-?token": "token",
    r"data ?point": "example",
    r"perturb(?:ed|ing) curve": "perturbation curve",
    r"ground-truth": "truth",
}
# What reads like a translation, and what to write instead: counted, under a ceiling.
ODD = {
    r"models? as (?:they are|it is)": "unmodified models",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:is|are|was|be) (?-i:none)": "is not a …",
    r"its like(?!l)": "similar ones",
    r"ha(?:s|ve) not (?:so|that) many": "lacks that many",
    r"in vain": "without effect",
    r"(?:goes|go|went) by": "uses",
    r"(?:tak(?:e|es|en|ing)|took) (?:(?:\w+ ){1,3})?away": "remove",
    r"have a say": "are used for selection",
    r"parts two": "separates two",
    r"(?:is|are|was|were) told (?!apart)": "is said, is known",
    r"of (?:them|which) (?:none|all|some|two|three)": "none of them",
    r"not (?:been )?asked (?:yet|of)": "not measured yet",
    r"nobody (?:has )?(?:supervised|chose|chosen|named|asked)": "unsupervised, unseen",
    r"(?:of|by) the(?:ir| )like\b|and the like\b": "and so on",
    r"whom": "who, which",
    r"where there (?:is|are) (?:one|none|any)": "if available",
    r"(?:who|that) ha(?:s|ve) not read": "new to",
    r"a stranger(?:'s)?": "untrusted",
    r"ever(?:y|yone) of which": "all",
    r"turned round": "reversed",
    r"surely": "significantly",
    r"anew": "again",
    r"of the day": "then current",
    r"beside (?:the|their|its|it|them|each|every|that|those|ours|a|other)\b": "next to, with",
    r"lies? (?:in|at|beside|near)": "is in",
    r"(?:goes|going|go|went) on\b(?! top)": "continues, resumes",
    r"of (?:its|their|your|our|his) own(?! \w)": "its own …, separate",
    r"at hand\b": "available",
    r"made again": "recomputed",
    r"a stopped (?:run|survey|batch|comparison)": "an interrupted …",
    r"(?:end|ends|ended|ending) with exit code": "exits with code",
    r"speaks? (?:for|against|of)": "supports, contradicts, mentions",
}


def pages() -> list[Path]:
    """README, the pages that are written by hand, and the words of the methods' pages."""
    found = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not _made(path)]
    return [ROOT / "README.md", *found, ROOT / "docs" / "method_pages.toml"]


def modules() -> list[Path]:
    return sorted(path for path in (ROOT / "src" / "whyformer").rglob("*.py") if "zoo" not in path.parts)


def templates() -> list[Path]:
    return sorted((ROOT / "src" / "whyformer").rglob("*.html.j2"))


def _made(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name.startswith(MADE) and name != METHODS_INDEX


def sentences(path: Path) -> Iterator[str]:
    """The sentences of a page, of a file of texts, or of the docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        paragraphs = [part for found in docstrings(text) for part in _paragraphs_of_docstring(found)]
    elif path.suffix == ".toml":
        paragraphs = [part for entry in tomllib.loads(text).values() for part in _paragraphs_of_page(entry["says"])]
    else:
        paragraphs = _paragraphs_of_page(text)
    for paragraph in paragraphs:
        yield from split(paragraph)


def messages(path: Path) -> Iterator[str]:
    """The sentences of a module's other texts (help, errors), or of a template; not those of made-up worlds."""
    if set(path.parts) & {"facts", "scenes"}:
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        paragraphs = [part for found in _strings(ast.parse(text)) for part in re.split(r"\n\s*\n", found)]
    else:
        text = re.sub(r"{%.*?%}|{#.*?#}|<(?:style|script).*?</(?:style|script)>", "", text, flags=re.DOTALL)
        text = re.sub(r"(?m)^.*[{;}]$", "", re.sub(r"{{.*?}}", "CODE", text, flags=re.DOTALL))  # no styles
        paragraphs = re.split(r"<[^>]*>|\n\s*\n", text)
    for paragraph in paragraphs:
        yield from split(paragraph)


def _strings(node: ast.AST) -> Iterator[str]:
    """Texts of a few words that are no docstrings; values in them count as a word."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Constant(value=str(text)):
            texts = [text]
        case ast.JoinedStr(values=values):
            texts = ["".join(str(one.value) if isinstance(one, ast.Constant) else "CODE" for one in values)]
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _strings(child)
            return
    yield from (text for text in texts if text.count(" ") >= LEAST_SPACES and re.search("[.:;,]", text))


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _paragraphs_of_docstring(text: str) -> list[str]:
    """Its paragraphs, and each argument by itself; examples, tables and listings are left out."""
    kept = [line for line in text.splitlines() if not re.match(r"\s*(?:>>>|\.\.\. |\||python )", line)]
    text = re.sub(r"(?m)^ +(?=\*{0,2}\w+: )|^[-*] ", "\n", "\n".join(kept))
    text = re.sub(r"(?m)^(?:Args|Returns|Raises|Example|Yields):$|^ *\*{0,2}\w+: ", "\n", text)
    return re.split(r"\n\s*\n", text)


def _paragraphs_of_page(text: str) -> list[str]:
    """Its paragraphs, items of lists and cells of tables; what is generated, code and headings are left out."""
    text = re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<!--.*?-->|^---\n.*?\n---\n", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^(?:#.*|!\[.*\]\(.*\)|\| ?-.*|<.*>|:::.*)$", "\n", text)
    text = re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n", text)
    return [cell for part in re.split(r"\n\s*\n", text) for cell in _cells(part)]


def _cells(paragraph: str) -> list[str]:
    if not paragraph.lstrip().startswith("|"):
        return [paragraph]
    return [cell for line in paragraph.splitlines() for cell in re.split(r"(?<!\\)\|", line)]


def split(paragraph: str) -> list[str]:
    """The sentences of a paragraph; code, formulas and addresses count as a word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    text = re.sub(r"`[^`]*`|\$[^$]+\$", "CODE", text).replace("**", "")
    text = re.sub(r"\b(e\.g|i\.e|et al|vs|Eq|Sec|Fig|Tab|St|Art|No|pp)\.", r"\1", text)
    return [part.strip() for part in re.split(r"(?<=[.?!])[\")*]*\s+(?=[\"(*A-Z0-9])", text) if part.strip()]


def is_long(sentence: str) -> bool:
    return len(re.findall(r"[^\W_][\w'’.,-]*", sentence)) > MOST_WORDS


def odd_words(sentence: str) -> list[str]:
    """What reads oddly in a sentence, with what to write instead."""
    found = ((re.search(rf"\b(?:{odd})", sentence, re.IGNORECASE), better) for odd, better in ODD.items())
    return [f"{match[0]} → {better}" for match, better in found if match]


def counts() -> dict[str, int]:
    """Long sentences and odd words of the pages, of the docstrings, and of messages, help and templates."""
    texts = {
        "pages": [each for path in pages() for each in sentences(path)],
        "docstrings": [each for path in modules() for each in sentences(path)],
        "messages": [each for path in [*modules(), *templates()] for each in messages(path)],
    }
    found = {f"long_{name}": sum(map(is_long, each)) for name, each in texts.items()}
    found |= {f"odd_{name}": sum(len(odd_words(one)) for one in each) for name, each in texts.items()}
    starts = [text for path in modules() for text in docstrings(path.read_text()) if text.startswith("What ")]
    return found | {"docstrings_that_begin_with_what": sum("?" not in text for text in starts)}


def texts_of(path: Path) -> list[str]:
    """All sentences of a page, a module or a template."""
    found = [] if path.suffix == ".j2" else list(sentences(path))
    return found + (list(messages(path)) if path.suffix in (".py", ".j2") else [])


def main() -> None:
    wanted = [Path(name).resolve() for name in sys.argv[1:] if not name.startswith("--")]
    for path in [*pages(), *modules(), *templates()]:
        if any(path.is_relative_to(one) for one in wanted):
            for sentence in texts_of(path):
                notes = ["long"] * is_long(sentence) + odd_words(sentence)
                if notes:
                    print(f"{path.relative_to(ROOT)}: [{', '.join(notes)}] {sentence}")
    if wanted:
        return
    saved, now = tomllib.loads(COUNTS.read_text()), counts()
    if "--save" in sys.argv:
        saved["ceiling"] = {name: min(number, saved["ceiling"].get(name, number)) for name, number in now.items()}
        tables = (f"[{title}]\n" + "".join(f"{n} = {v}\n" for n, v in rows.items()) for title, rows in saved.items())
        COUNTS.write_text("\n".join(tables))
    for name, number in now.items():
        print(f"{name}: {number}, at first {saved['before'].get(name)}, at most {saved['ceiling'].get(name)}")


if __name__ == "__main__":
    main()
