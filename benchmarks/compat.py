"""The wheel in fresh environments, by its own requirements alone: on which versions does it compute the same?

    python benchmarks/compat.py --folder ENVIRONMENTS [--wheel WHEEL] [--pair 3.11,2.6.0,4.56.0 …] [--suite]

For each Python and pair of torch and transformers an environment is made, the wheel installed with those two versions
and no constraints, and benchmarks/installed.py run there: explanations kept with the pinned versions are computed
again. What was found is written to benchmarks/results/compat.json, a row for each environment; a row that is there
already and not asked for again stays. An interpreter is looked for as pythonX.Y on the path and among pyenv's.

With --suite the tools of the extra `dev` are installed too, and the whole test suite of this checkout is run against
the wheel: about a quarter of an hour on two cores for each environment. With --again the environments of --folder are
taken as they are, the wheel of this checkout is put into them, and the tests that had failed are run once more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "results" / "compat.json"
PAIRS = ("3.11,2.6.0,4.56.0", "3.11,2.13.0,5.22.2", "3.12,2.6.0,4.57.6", "3.12,2.15.0,5.0.0", "3.13,2.15.0,5.23.0")


def interpreter(python: str) -> Path | None:
    """The path of a Python of this version."""
    on_path = shutil.which(f"python{python}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python{python}"))
    return Path(kept[-1]) if kept else Path(on_path) if on_path else None


def build(folder: Path) -> Path:
    """The wheel of this checkout, without what an earlier build left behind."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return max(folder.glob("whyformer-*.whl"), key=lambda path: path.stat().st_mtime)


def installed(
    folder: Path, python: str, torch: str, transformers: str, wheel: Path, *, with_suite: bool = False
) -> dict[str, Any]:
    """A row: what became of the wheel in a fresh environment."""
    row: dict[str, Any] = {"python": python, "torch": torch, "transformers": transformers}
    base = interpreter(python)
    if base is None:
        return {**row, "failure": f"no Python {python} here"}
    place = folder / f"{python}-{torch}-{transformers}"
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([str(base), "-m", "venv", str(place)], check=True)
    own = place / "bin" / "python"
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", str(own)] if uv else [str(own), "-m", "pip", "install"]
    start = time.monotonic()
    wanted = [f"torch=={torch}", f"transformers=={transformers}", str(wheel)]
    done = subprocess.run([*pip, "--quiet", *wanted], capture_output=True, text=True, check=False)
    row["install_seconds"] = round(time.monotonic() - start)
    if done.returncode:
        return {**row, "failure": " ".join(done.stderr.split())[-300:]}
    out = place / "result.json"
    script = [str(own), str(ROOT / "benchmarks" / "installed.py"), "--out", str(out)]
    start = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    subprocess.run(script, cwd=place, env=environment, check=False)
    row["run_seconds"] = round(time.monotonic() - start)
    found = json.loads(out.read_text()) if out.is_file() else {"failure": "installed.py did not end"}
    versions = found.get("versions", {})
    if with_suite:
        tools = subprocess.run(
            [*pip, "--quiet", *wanted[:2], f"{wheel}[dev]"], capture_output=True, text=True, check=False
        )
        found["suite"] = {"failure": " ".join(tools.stderr.split())[-300:]} if tools.returncode else suite(place)
    return {
        **row,
        "python": found.get("python", python),
        "torch": versions.get("torch", torch),
        "transformers": versions.get("transformers", transformers),
        **{name: found[name] for name in ("same", "of", "differ", "failure", "suite") if name in found},
    }


def again(folder: Path, row: dict[str, Any], wheel: Path) -> dict[str, Any]:
    """The row of an environment that is there, after the tests that had failed were run again with this wheel."""
    place, before = folder / row["asked"].replace(",", "-"), row["suite"]
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
    subprocess.run([*install, str(wheel)], check=True)
    found = suite(place, before["failed"])
    counts = {name: before[name] + found[name] for name in ("passed", "skipped")}
    return {**row, "suite": {**before, **counts, "failed": found["failed"], "run_again": len(before["failed"])}}


def suite(place: Path, tests: Sequence[str] = ()) -> dict[str, Any]:
    """The test suite of this checkout, or some tests, run against the package that an environment has installed."""
    checkout, report = place / "checkout", place / "suite.xml"
    shutil.rmtree(checkout, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{place / 'bin'}{os.pathsep}{environment['PATH']}"
    command = [str(place / "bin" / "python"), "-m", "pytest", "-n", "auto", f"--junitxml={report}"]
    if tests:
        names = place / "again.txt"
        names.write_text("\n".join(_node(checkout, test) for test in tests))
        command.append(f"@{names}")
    start = time.monotonic()
    subprocess.run(command, cwd=checkout, env=environment, check=False)
    if not report.is_file():
        return {"failure": "pytest wrote no report"}
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": sorted(f"{case.get('classname')}::{case.get('name')}" for case in failed),
        "minutes": round((time.monotonic() - start) / 60, 1),
    }


def _node(checkout: Path, test: str) -> str:
    """What pytest calls a test whose report names module, class and test."""
    place, _, name = test.partition("::")
    parts = place.split(".") if place else name.split(".")  # a module that could not be read has no test
    length = next((n for n in range(len(parts), 0, -1) if (checkout / f"{'/'.join(parts[:n])}.py").is_file()), 0)
    return "::".join([f"{'/'.join(parts[:length])}.py", *parts[length:], *([name] if place else [])])


def kept_rows() -> dict[str, dict[str, Any]]:
    """The rows that the file has, by what was asked for."""
    return {row["asked"]: row for row in json.loads(FILE.read_text())["rows"]} if FILE.is_file() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where environments are made")
    parser.add_argument("--wheel", type=Path, help="the wheel; that of this checkout if not given")
    parser.add_argument("--pair", action="append", help="PYTHON,TORCH,TRANSFORMERS; those of PAIRS if not given")
    parser.add_argument("--suite", action="store_true", help="run the whole test suite in each, too")
    parser.add_argument("--again", action="store_true", help="run the tests that had failed in them again")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wheel = arguments.wheel or build(arguments.folder)
    alike = True
    for pair in arguments.pair or PAIRS:
        if arguments.again:
            row = again(arguments.folder, kept_rows()[pair], wheel)
        else:
            row = {"asked": pair, **installed(arguments.folder, *pair.split(","), wheel, with_suite=arguments.suite)}
        rows = kept_rows() | {pair: row}  # read only now: another run may have written meanwhile
        ordered = [rows[name] for name in sorted(rows)]
        megabytes = round(wheel.stat().st_size / 1e6, 1)
        FILE.write_text(json.dumps({"wheel_megabytes": megabytes, "rows": ordered}, indent=1) + "\n")
        print(row, flush=True)
        alike &= "failure" not in row and row["same"] == row["of"] and not row.get("suite", {}).get("failed")
    return int(not alike)


if __name__ == "__main__":
    sys.exit(main())
