"""The tree is the architecture: what the import graph says of it."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "whyformer"
# From the ground up: a room imports only from those before it.
LAYERS = [
    {"errors", "axes", "extras", "files", "arrays", "progress", "batching", "ray_actors"},
    {"models"},
    {"inputs"},
    {"render"},
    {"modalities"},
    {"served"},
    {"scenes"},
    {"facts"},
    {"targets"},
    {"watching"},
    {"backward"},
    {"tracing"},
    {"removal"},
    {"methods"},
    {"results"},
    {"api"},
    {"metrics"},
    {"data"},
    {"plugins"},
    {"benchmark"},
    {"surveys"},
    {"cli", "app", "testing"},
    {"extend"},
    {"__init__", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "zoo" not in path.parts)
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 350, 60


def room_of(path: Path) -> str:
    """The folder of a module, or the module itself where it stands alone."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms a module imports from, at the top or inside functions; imports for type checkers alone do not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} if node.module != "whyformer" else {f"whyformer.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("whyformer.")}


def test_every_room_has_its_place():
    assert {room_of(path) for path in MODULES} <= set(LEVEL)


def test_a_lower_room_never_imports_a_higher_one():
    offenders = []
    for path in MODULES:
        own = room_of(path)
        if own in ("__init__", "__main__"):
            continue
        rooms = imported_rooms(path)
        higher = {room for room in rooms if room in LEVEL and LEVEL[room] > LEVEL[own]}
        unknown = rooms - set(LEVEL) - {"__version__"}
        if higher:
            offenders.append(f"{path.relative_to(SOURCE)} stands in {own!r} and imports {sorted(higher)}")
        if unknown:
            offenders.append(f"{path.relative_to(SOURCE)} imports {sorted(unknown)} from the package itself")
    assert not offenders, "\n".join(offenders)


def test_modules_and_functions_are_short():
    offenders = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MOST_LINES:
            offenders.append(f"{path.relative_to(SOURCE)} has more than {MOST_LINES} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and length(node) > MOST_LINES_OF_A_FUNCTION:
                offenders.append(f"{path.relative_to(SOURCE)}: {node.name} has {length(node)} lines")
    assert not offenders, "\n".join(offenders)


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without those of its docstring."""
    documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    description = node.body[0].end_lineno - node.body[0].lineno + 1 if documented else 0
    return node.end_lineno - node.lineno + 1 - description
