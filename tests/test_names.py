"""A search finds one thing: basenames and public names are unique, and the prose keeps to the field's English."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "whyformer"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "zoo" not in path.parts)

SHARED_BASENAMES = {"__init__.py"}
SHARED_NAMES = {
    # Scenes and facts are two worlds with the same public interface.
    *("COLOURS", "Example", "KINDS", "SPLITS", "THINGS", "example"),
    "run_shards",  # every engine has one
    *("MODALITY", "collate", "encode", "lay_out", "noise", "place"),  # the interface of a modality
    "Question",  # of Facts World, and the one that a trace answers
}
ODD = re.compile(
    r"\b[Mm]end\b|(?<!here )\bis no (?!longer\b|more\b|shorter\b|such\b)|(?<!here )\bis none\b(?! of\b)"
    r"|\bgoes by\b|\bits like\b|\bnot so many\b|\bin vain\b|\bby lot\b"
)
# Typical turns of a translation, checked in the rooms of READ.
TYPICAL = re.compile(
    r"\bfilled up\b"
    r"|\bhand(?:s|ed) (?:on|to|over)\b|\b(?:is|are|was) (?:told|asked)\b|\basked of\b|\bof so many\b"
    r"|\brests? on\b|\bread off\b|\b(?:is|are) gone\b|\blaid on\b|\bas (?:it is|they are)\b|\bcounts? for nothing\b"
    r"|\bbut for\b|\banew\b|\bone (?:under|after) the other\b|\bmodel hears\b|\b[Rr]efuses? (?:a|an|what)\b"
    r"|\bwhat is (?:seen|said|asked|known) of\b|\bof what(?:ever)? (?:is|was)\b|\bor else with\b|\bsays? nothing\b"
)
READ = {
    *("arrays.py", "axes.py", "batching.py", "errors.py", "extras.py", "files.py", "plugins.py", "progress.py"),
    "ray_actors.py",
    *("data", "facts", "inputs", "methods", "metrics", "modalities", "models", "render", "results", "scenes"),
    *("api", "app", "backward", "benchmark", "cli", "removal", "served", "surveys", "targets", "tracing", "watching"),
}


# Participles that mean something else in every file.
VAGUE = {"arrived", "asked", "begun", "found", "handed", "held", "made", "said", "told"}


def bound_names(tree: ast.Module) -> Iterator[str]:
    """The names of functions, classes, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def public_names(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and constants at the top level of a module."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            names = [name.id for name in bound if isinstance(name.ctx, ast.Store)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def in_two_places(places: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def test_a_basename_occurs_in_one_folder():
    places = defaultdict(set)
    for path in MODULES:
        places[path.name].add(str(path.relative_to(SOURCE)))
    assert not in_two_places({name: where for name, where in places.items() if name not in SHARED_BASENAMES})


def test_a_public_name_is_defined_in_one_module():
    places = defaultdict(set)
    for path in MODULES:
        for name in public_names(ast.parse(path.read_text(encoding="utf-8"))):
            places[name].add(str(path.relative_to(SOURCE)))
    assert not in_two_places({name: where for name, where in places.items() if name not in SHARED_NAMES})


def test_no_name_is_a_vague_participle():
    for path in MODULES:
        names = set(bound_names(ast.parse(path.read_text(encoding="utf-8"))))
        assert not {name.lower().strip("_") for name in names} & VAGUE, path.relative_to(SOURCE)


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def strings(tree: ast.Module) -> Iterator[str]:
    """Docstrings and messages: every string constant of two words or more."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield " ".join(node.value.split())


def test_prose_is_idiomatic():
    for path in MODULES:
        tree, where = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(SOURCE)
        assert not [text for text in docstrings(tree) if text.startswith("What")], where
        assert not [text for text in strings(tree) if ODD.search(text)], where
        assert where.parts[0] not in READ or not [text for text in strings(tree) if TYPICAL.search(text)], where
