"""How many planted faults the tests catch: one line of the package is made wrong at a time, in a copy.

python benchmarks/mutations.py --count 40 --out benchmarks/results/mutations.json
python benchmarks/mutations.py --label before --revision 1234567 --out benchmarks/results/mutations.json

The tests run in processes forked from this one, one folder after another until a test fails; the working tree is not
touched. The same seed plants the same faults in the same package, so that the tests of two revisions can be compared.
Faults that the file already has a verdict on, under this label, are not planted again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, islice, zip_longest
from pathlib import Path

import pytest
import torch
import transformers  # noqa: F401  # here, so that the processes of the tests need not import it again

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/whyformer")
# The folders that get faults, and the tests that are run for each: those that fail soonest come first.
TESTS = {
    "methods": "reference methods golden contract tracing",
    "tracing": "reference tracing golden contract propagation",
    "propagation": "propagation golden reference contract tracing",
    "metrics": "metrics benchmark",
    "inputs": "inputs results api scenes cli hostile",
    "removal": "methods contract/test_contract_ablation.py metrics benchmark api",
    "targets": "targets tracing/test_several.py api results",
    "models": "models targets tracing reference contract api",
}
NEAR = 6  # files that speak of what is faulty, which are tried before all others
BROKEN = 70  # the exit code of a child that could not run the tests
ON_A_GPU = {"triton_kernels.py", "fused.py"}
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
    for node in code_nodes(ast.parse(text)):
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
    except SyntaxError:
        return False
    return True


@cache
def text_of(module: str) -> str:
    return (ROOT / PACKAGE / module).read_text(encoding="utf-8")


def chosen(seed: int, count: int) -> list[Fault]:
    """As many faults from each folder and of each kind as the count allows."""
    draw, by_folder = random.Random(seed), []
    for folder in TESTS:
        paths = sorted((ROOT / PACKAGE / folder).glob("*.py"))
        faults = [fault for path in paths if path.name not in ON_A_GPU for fault in faults_of(path)]
        by_kind: dict[str, list[Fault]] = {}
        for fault in draw.sample(faults, len(faults)):
            by_kind.setdefault(fault.kind, []).append(fault)
        kinds = [by_kind[kind] for kind in draw.sample(sorted(by_kind), len(by_kind))]
        by_folder.append(chain.from_iterable(zip_longest(*kinds)))
    every = (fault for fault in chain.from_iterable(zip_longest(*by_folder)) if fault is not None and compiles(fault))
    return list(islice(every, count))


def copy_of_the_project(folder: Path, revision: str | None) -> None:
    """The files of the working tree, with the tests of another revision if one is named; weights are linked."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not (revision and name.startswith("tests/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = os.symlink if name.endswith(".safetensors") else shutil.copyfile
            copy(ROOT / name, folder / name)
    if revision:
        archive = subprocess.run(["git", "archive", revision, "tests"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def in_a_child(work: Callable[[], int]) -> int:
    """The exit code of a function in a process of its own, which has imported what this one has."""
    child = os.fork()
    if not child:
        code = BROKEN
        try:
            os.setpgid(0, 0)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:  # the time is up, or somebody wants this to end
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


@dataclass(frozen=True)
class FirstFailure:
    """A plugin of pytest that writes down which test failed, or which file could not be collected."""

    file: Path

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.file.write_text(report.nodeid, encoding="utf-8")

    pytest_runtest_logreport = pytest_collectreport = note


def first_failure(folder: Path, tests: Sequence[str], known: Sequence[str] = ()) -> str | None:
    """The first of the tests that fails in a copy of the project, those left out that are known to fail."""
    log, found = folder / "log.txt", folder / "failed.txt"
    found.unlink(missing_ok=True)
    imported = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    command = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-W", imported, *tests]
    command += [f"--deselect={name}" for name in known]

    def work() -> int:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder / "src")
        sys.path.insert(0, str(folder / "src"))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        return int(pytest.main(command, plugins=[FirstFailure(found)]))

    code = in_a_child(work)
    if found.exists():
        return found.read_text(encoding="utf-8")
    if code == BROKEN:
        raise RuntimeError(log.read_text())
    return None if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else f"pytest: {code}"


def stages(folder: Path, fault: Fault, places: list[str]) -> list[list[str]]:
    """The tests of some places: first the files that speak of the faulty function or its module, then all."""
    node: ast.AST = ast.parse(text_of(fault.module))
    names = {Path(fault.module).stem}
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner.lineno <= fault.line <= (inner.end_lineno or 0):
            names.add(inner.name)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    paths = [folder / "tests" / place for place in places]
    files = [file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    mentions = {str(file.relative_to(folder)): len(pattern.findall(file.read_text())) for file in files}
    near = sorted((name for name, count in mentions.items() if count), key=lambda name: -mentions[name])[:NEAR]
    return [[name] for name in near] + [[f"tests/{place}"] for place in places]


def verdict_on(
    fault: Fault, folder: Path, places: list[str], known: set[str], seconds: float
) -> tuple[str, str | None]:
    """Whether the tests catch a fault, and the first test that does. One that fails without the fault is `known`."""

    def stop(*_: object) -> None:
        raise TimeoutError

    file, text = folder / PACKAGE / fault.module, text_of(fault.module)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(seconds))
    try:
        for tests in stages(folder, fault, places):
            while True:
                file.write_text(fault.plant(text), encoding="utf-8")
                failed = first_failure(folder, tests, sorted(known))
                file.write_text(text, encoding="utf-8")
                if failed is None:
                    break
                if first_failure(folder, [failed]) is None:
                    return "caught", failed
                known.add(failed)
    except TimeoutError:
        return "unfinished", None
    finally:
        signal.alarm(0)
        file.write_text(text, encoding="utf-8")
    return "missed", None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tests", nargs="+", help="paths under tests/ (default: those of the folder with the fault)")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for the tests of one fault")
    parser.add_argument("--revision", help="take the tests of this revision")
    parser.add_argument("--part", default="1/1", help="plant every second fault, say, from the first on: 1/2")
    parser.add_argument("--label", default="now", help="the name of the verdicts, to compare two revisions")
    parser.add_argument("--missed-by", metavar="LABEL", help="plant only what the tests of this label did not catch")
    parser.add_argument("--list", action="store_true", help="print the faults and plant none")
    parser.add_argument("--out", type=Path, default=Path("mutations.json"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no child is left behind
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    part, parts = map(int, options.part.split("/"))
    faults = chosen(options.seed, options.count)[part - 1 :: parts]
    if options.list:
        for fault in faults:
            print(f"{fault.module}:{fault.line} {fault.kind}: {fault.before} → {fault.after}")
        return
    stored = json.loads(options.out.read_text()) if options.out.exists() else {"seed": options.seed, "faults": {}}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_of_the_project(folder, options.revision)
        known = set(stored.get("failing_without_a_fault", ()))
        for number, fault in enumerate(faults, 1):
            row = stored["faults"].setdefault(fault.key, asdict(fault) | {"verdicts": {}})
            other = row["verdicts"].get(options.missed_by, {}).get("verdict")
            if options.label in row["verdicts"] or (options.missed_by and other in (None, "caught")):
                continue
            start, places = time.monotonic(), options.tests or TESTS[fault.module.partition("/")[0]].split()
            verdict, test = verdict_on(fault, folder, places, known, options.timeout)
            seconds = round(time.monotonic() - start)
            row["verdicts"][options.label] = {"verdict": verdict, "test": test, "seconds": seconds}
            stored["failing_without_a_fault"] = sorted(known)
            options.out.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(
                f"{number:3} {verdict:7} {seconds:4} s {fault.module}:{fault.line} {fault.kind} {test or ''}",
                flush=True,
            )
    verdicts = [row["verdicts"].get(options.label, {}).get("verdict") for row in stored["faults"].values()]
    print(f"{options.label}: {verdicts.count('caught')} of {len(faults)} caught, {verdicts.count('missed')} missed")


if __name__ == "__main__":
    main()
