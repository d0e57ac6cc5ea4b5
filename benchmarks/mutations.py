"""How many planted faults the tests catch: one line of the package is made wrong at a time, in a copy.

python benchmarks/mutations.py --label after --folder build/mutations-after
python benchmarks/mutations.py --label before --revision 1234567 --folder build/mutations-before

Every fault is planted behind a switch. One run of the tests, all switches off, notes which tests reach which fault,
and what each test costs. Then the tests are collected once, and for each fault a forked process turns its switch on and
runs the tests that reach it, cheap ones first, until one fails. The same seed plants the same faults in the same
package, so that the tests of two revisions can be compared. The working tree is not touched, and what the folder
already holds is not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers  # noqa: F401  # here, so that the processes of the tests need not import it again

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/whyformer")
FOLDERS = [
    "methods",
    "tracing",
    "watching",
    "backward",
    "metrics",
    "inputs",
    "removal",
    "targets",
    "models",
    "modalities",
]
ON_A_GPU = {"triton_kernels.py"}
SLOW = ("tests/browser/", "tests/docs/test_notebooks.py", "tests/scripts/test_installed.py", "tests/test_wheel.py")
SWITCH = '''"""Which fault is on, and which tests reach one."""
import os
active = int(os.environ.get("FAULT", "-1"))
seen = set()

def on(number):
    if file := os.environ.get("REACHED"):
        pair = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if pair not in seen:
            seen.add(pair)
            with open(file, "a") as lines:
                lines.write(f"{pair[0]} {pair[1]}\\n")
    return number == active
'''
COMPARISONS = {
    **{ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">"},
    **{ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
LIMITS = {"clamp", "clamp_", "clip", "clamp_min", "relu", "abs"}
AXES = {"HEAD": "QUERY", "QUERY": "KEY", "KEY": "QUERY"}


@dataclass(frozen=True)
class Fault:
    """One replacement in the text of a module."""

    module: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int

    @property
    def key(self) -> str:
        return f"{self.module}:{self.line}:{self.start}:{self.kind}:{self.after}"

    def plant(self, text: str) -> str:
        assert text[self.start : self.end] == self.before
        return text[: self.start] + self.after + text[self.end :]

    def overlaps(self, other: Fault) -> bool:
        return self.module == other.module and self.start < other.end and other.start < self.end


def is_message(node: ast.AST) -> bool:
    """Whether nothing computed depends on it: texts, types and errors."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom))


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def code_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that compute something."""
    if is_message(node) or is_typing_only(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from code_nodes(child)


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Those in the bodies of functions: what is computed at import cannot be switched afterwards."""
    outer = (node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef)))
    for function in (child for node in outer for child in node.body if isinstance(child, ast.FunctionDef)):
        for statement in function.body:
            yield from code_nodes(statement)


def is_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """What can go wrong at a node: the kind of fault, what is replaced, and by what."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            swapped = f"{ast.unparse(left)} {COMPARISONS[type(operator)]} {ast.unparse(right)}"
            yield "comparison", node, f"({swapped})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(left, ARITHMETIC[type(operator)](), right))})"
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in LIMITS and not is_module(value):
            yield "limit", node, f"({ast.unparse(value)})"
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                if bound is not None:
                    yield "slice", bound, f"{ast.unparse(bound)} + 1"
        case ast.keyword(arg="dim" | "axis", value=ast.Name(id=name) as axis) if name in AXES:
            yield "axis", axis, AXES[name]
        case ast.keyword(arg="dim" | "axis", value=value) if (axis := number_of(value)) is not None:
            yield "axis", value, str(axis - 1 if axis < 0 else axis + 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Constant(value=True | False as value) if type(value) is bool:
            yield "constant", node, str(not value)
        case ast.Constant(value=value) if is_number(node):
            yield "constant", node, repr(value + 1 if isinstance(value, int) else value * 2)


def number_of(node: ast.AST) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


def is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "F")


def faults_of(path: Path) -> list[Fault]:
    """Every fault that a module could get."""
    text = path.read_text(encoding="utf-8")
    data, starts = text.encode(), [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[int, int, str], Fault] = {}
    for node in run_nodes(ast.parse(text)):
        for kind, place, after in replacements(node):
            first, last = (
                len(data[: starts[line - 1] + column].decode())
                for line, column in ((place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset))
            )
            before = text[first:last]
            if "\n" not in before and '"' not in before:
                module = path.relative_to(ROOT / PACKAGE).as_posix()
                found.setdefault((first, last, kind), Fault(module, place.lineno, kind, before, after, first, last))
    return list(found.values())


def compiles(fault: Fault) -> bool:
    try:
        compile(fault.plant(text_of(fault.module)), fault.module, "exec")
        compile(with_switches(text_of(fault.module), {0: fault}), fault.module, "exec")
    except SyntaxError:
        return False
    return True


@cache
def text_of(module: str) -> str:
    return (ROOT / PACKAGE / module).read_text(encoding="utf-8")


def with_switches(text: str, faults: dict[int, Fault]) -> str:
    """A module with each of its faults behind a switch; no line moves."""
    for number, fault in sorted(faults.items(), key=lambda pair: -pair[1].start):
        switched = f'({fault.after} if __import__("fault_switch").on({number}) else {fault.before})'
        text = text[: fault.start] + switched + text[fault.end :]
    return text


def choose(seed: int, count: int) -> list[Fault]:
    """As many faults from each folder and of each kind as the count allows."""
    draw, by_folder = random.Random(seed), []
    for folder in FOLDERS:
        paths = sorted((ROOT / PACKAGE / folder).glob("*.py"))
        faults = [fault for path in paths if path.name not in ON_A_GPU for fault in faults_of(path)]
        by_kind: dict[str, list[Fault]] = {}
        for fault in draw.sample(faults, len(faults)):
            by_kind.setdefault(fault.kind, []).append(fault)
        kinds = [by_kind[kind] for kind in draw.sample(sorted(by_kind), len(by_kind))]
        by_folder.append(chain.from_iterable(zip_longest(*kinds)))
    chosen: list[Fault] = []
    for fault in chain.from_iterable(zip_longest(*by_folder)):
        if len(chosen) == count:
            break
        if fault is not None and compiles(fault) and not any(fault.overlaps(other) for other in chosen):
            chosen.append(fault)
    return chosen


def copy_of_the_project(folder: Path, revision: str | None, faults: list[Fault]) -> None:
    """The working tree with all faults switched off, and the tests of another revision if one is named."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not (revision and name.startswith("tests/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    if revision:
        archive = subprocess.run(["git", "archive", revision, "tests"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / "src/fault_switch.py").write_text(SWITCH, encoding="utf-8")
    for module in {fault.module for fault in faults}:
        own = {number: fault for number, fault in enumerate(faults) if fault.module == module}
        (folder / PACKAGE / module).write_text(with_switches(text_of(module), own), encoding="utf-8")


def wait_for(child: int) -> int:
    """The exit code of a process, whose whole group ends with this one."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def in_a_child(work: Callable[[], object], log: Path) -> int:
    """The exit code of a function in a process of its own, which has imported what this one has."""
    child = os.fork()
    if child:
        return wait_for(child)
    code = 70
    try:
        os.setpgid(0, 0)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_pytest(folder: Path, plugin: object, tests: list[str]) -> None:
    def work() -> None:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder / "src")
        sys.path.insert(0, str(folder / "src"))
        imported = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-W", imported]
        options.append("--continue-on-collection-errors")  # of tests whose libraries are missing
        pytest.main([*options, *tests], plugins=[plugin])

    if in_a_child(work, folder / "log.txt"):
        raise RuntimeError((folder / "log.txt").read_text()[-2000:])


def function_of(test: str) -> str:
    return test.partition("[")[0]


@dataclass
class Costs:
    """A plugin that writes down the processor time of each test, and whether it failed."""

    file: Path
    every: int
    failed: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        cases: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            cases[function_of(item.nodeid)].append(item)
        draw = random.Random(0)
        kept = {id(item) for group in cases.values() for item in draw.sample(group, -(-len(group) // self.every))}
        items[:] = [item for item in items if id(item) in kept]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = sum(os.times()[:4])
        yield
        row = {"test": item.nodeid, "seconds": round(sum(os.times()[:4]) - start, 3)}
        with self.file.open("a") as lines:
            lines.write(json.dumps(row | {"failed": item.nodeid in self.failed}) + "\n")


@dataclass
class Verdicts:
    """A plugin that runs for each fault the tests that reach it, in a process with that fault switched on."""

    faults: list[Fault]
    reached: dict[int, set[str]]
    seconds: dict[str, float]
    known: set[str]
    limit: int
    file: Path
    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.known:
            self.failed = report.nodeid

    def order(self, items: list[pytest.Item], number: int) -> list[pytest.Item]:
        """The cheapest case of each function that reaches a fault, then its others, those included nobody ran."""
        reached = self.reached[number]
        functions = {function_of(test) for test in reached}
        near = [item for item in items if function_of(item.nodeid) in functions]
        near = [item for item in near if item.nodeid in reached or item.nodeid not in self.seconds]
        near.sort(key=lambda item: (item.nodeid not in reached, self.seconds.get(item.nodeid, 1.0)))
        first = {function_of(item.nodeid): item for item in reversed(near)}
        return sorted(near, key=lambda item: first[function_of(item.nodeid)] is not item)

    def run(self, session: pytest.Session, number: int, items: list[pytest.Item], result: Path) -> None:
        import fault_switch  # that of the copy

        fault_switch.active, os.environ["FAULT"] = number, str(number)
        resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit))
        signal.alarm(8 * self.limit)
        for item, following in zip_longest(items, items[1:]):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                result.write_text(self.failed, encoding="utf-8")
                break
        session._setupstate.teardown_exact(None)

    def verdict(self, session: pytest.Session, number: int) -> tuple[str, str | None]:
        items, result = self.order(session.items, number), self.file.with_name("failed.txt")
        while items:
            result.unlink(missing_ok=True)
            code = in_a_child(partial(self.run, session, number, items, result), self.file.with_name("log.txt"))
            if not result.exists():
                return ("unfinished" if code else "missed"), None
            test = result.read_text()
            again = [item for item in items if item.nodeid == test]
            result.unlink()
            in_a_child(partial(self.run, session, -1, again, result), self.file.with_name("log.txt"))
            if not result.exists():
                return "caught", test
            self.known.add(test)  # it fails without the fault as well
            items = [item for item in items if item.nodeid != test]
        return "missed", None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        done = lines_of(self.file)
        for number, fault in enumerate(self.faults):
            if any(row["fault"] == fault.key for row in done):
                continue
            verdict, test = self.verdict(session, number)
            with self.file.open("a") as lines:
                lines.write(json.dumps({"fault": fault.key, "verdict": verdict, "test": test}) + "\n")
        return True


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def reached_by(file: Path) -> dict[int, set[str]]:
    """The tests that reach each fault; a test's name may have blanks."""
    reached: dict[int, set[str]] = defaultdict(set)
    for line in file.read_text().splitlines() if file.exists() else ():
        number, _, test = line.partition(" ")
        if not test.startswith(SLOW):
            reached[int(number)].add(test)
    return reached


def cost_by_folder(costs: list[dict[str, Any]]) -> dict[str, tuple[int, float]]:
    """The cases that were run and their processor time, the dearest folder first."""
    table: dict[str, list[float]] = defaultdict(list)
    for row in costs:
        place = row["test"].split("/")
        table[place[1] if len(place) > 2 else "."].append(row["seconds"])
    return {place: (len(part), sum(part)) for place, part in sorted(table.items(), key=lambda pair: -sum(pair[1]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--revision", help="take the tests of this revision")
    parser.add_argument("--label", default="now", help="the name of the verdicts, to compare two revisions")
    parser.add_argument("--folder", type=Path, default=Path("build/mutations"), help="for the copy and what it showed")
    parser.add_argument(
        "--every", type=int, default=1, help="run every so many-th case of a test to see what it reaches"
    )
    parser.add_argument("--limit", type=int, default=120, help="processor seconds for the tests of one fault")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="paths of tests")
    parser.add_argument("--list", action="store_true", help="print the faults and plant none")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/mutations.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no child is left behind
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    faults = choose(options.seed, options.count)
    if options.list:
        for fault in faults:
            print(f"{fault.module}:{fault.line} {fault.kind}: {fault.before} → {fault.after}")
        return
    folder = options.folder.resolve()
    costs, reached, verdicts = (folder / name for name in ("costs.jsonl", "reached.txt", "verdicts.jsonl"))
    if not folder.exists():
        copy_of_the_project(folder, options.revision, faults)
    if not (folder / "reached").exists():
        os.environ["REACHED"] = str(reached)
        run_pytest(folder, Costs(costs, options.every), options.tests)
        del os.environ["REACHED"]
        (folder / "reached").touch()
    rows = lines_of(costs)
    seconds, known = {row["test"]: row["seconds"] for row in rows}, {row["test"] for row in rows if row["failed"]}
    plugin = Verdicts(faults, reached_by(reached), seconds, known, options.limit, verdicts)
    run_pytest(folder, plugin, options.tests)
    package = subprocess.run(
        ["git", "rev-parse", f"HEAD:{PACKAGE}"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    begun = {"seed": options.seed, "package": package.stdout.strip()}
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    stored = before["faults"] if begun.items() <= before.items() else {}  # verdicts on another package say nothing here
    verdict_on = {row["fault"]: {name: row[name] for name in ("verdict", "test")} for row in lines_of(verdicts)}
    table = {}
    for fault in faults:
        others = stored.get(fault.key, {}).get("verdicts", {})
        table[fault.key] = asdict(fault) | {"verdicts": others | {options.label: verdict_on[fault.key]}}
    text = json.dumps(begun | {"faults": table}, indent=1, ensure_ascii=False)
    options.out.write_text(text + "\n", encoding="utf-8")
    for place, (cases, seconds) in cost_by_folder(rows).items():
        print(f"{place:12} {cases:6} cases {seconds:7.1f} s")
    found = [row["verdict"] for row in verdict_on.values()]
    print(f"{options.label}: {found.count('caught')} of {len(faults)} caught, {found.count('missed')} missed")


if __name__ == "__main__":
    main()
