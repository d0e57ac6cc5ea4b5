"""How long does a newcomer take? Two ways in, timed command by command on this machine, in a folder of their own.

    python benchmarks/newcomer.py --folder EMPTY_FOLDER

From the checkout: clone, `make demo`, a page. From the wheel: a fresh environment, the wheel, an explanation of a text
model of one's own. Written to benchmarks/results/newcomer.json: commands, seconds, and how busy the machine was.
The wheel is built first; that is not counted, since users fetch it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from compat import ROOT, build

FILE = ROOT / "benchmarks" / "results" / "newcomer.json"
TORCH = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
REVIEW = "A wonderful film, and not a bit too long."


def ways(folder: Path) -> dict[str, tuple[list[str], Path]]:
    """By name the commands of a way in, and the page that is there at its end."""
    wheel = build(folder)
    return {
        "from the checkout": (
            [f"git clone --quiet {shlex.quote(str(ROOT))} whyformer", "make --quiet -C whyformer demo"],
            folder / "whyformer" / "demo" / "index.html",
        ),
        "from the wheel": (
            [
                "python3 -m venv env",
                f"env/bin/pip install --quiet {TORCH} {wheel.name}",
                f"env/bin/whyformer explain {shlex.quote(REVIEW)} --model ./my-model --out why.html",
            ],
            folder / "why.html",
        ),
    }


def own_model(folder: Path) -> None:
    """A text model as users have one: a folder in Hugging Face layout."""
    source = ROOT / "src" / "whyformer" / "zoo" / "mini-bert"
    place = folder / "my-model"
    place.mkdir()
    for file in source.iterdir():
        (place / file.name).write_bytes(file.read_bytes())


def walk(commands: list[str], page: Path, folder: Path) -> dict[str, Any]:
    """The commands run one after the other, each with its seconds; the page must be there at the end."""
    steps = []
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for command in commands:
        start = time.monotonic()
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        steps.append({"command": command.replace(str(ROOT), "URL"), "seconds": round(time.monotonic() - start, 1)})
        print(steps[-1], flush=True)
        if done.returncode:
            raise SystemExit(f"{command!r} failed:\n{done.stdout}{done.stderr}")
    if not page.is_file():
        raise SystemExit(f"No page {page} at the end.")
    return {"commands": len(steps), "seconds": round(sum(step["seconds"] for step in steps), 1), "steps": steps}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="an empty folder, in which everything is done")
    parser.add_argument("--way", choices=("from the checkout", "from the wheel"), help="one of the two alone")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if any(arguments.folder.iterdir()):
        raise SystemExit(f"{arguments.folder} is not empty.")
    own_model(arguments.folder)
    report = json.loads(FILE.read_text()) if FILE.is_file() else {"ways": {}}
    for name, (commands, page) in ways(arguments.folder).items():
        if arguments.way in (None, name):
            before = os.getloadavg()[0]
            row = walk(commands, page, arguments.folder)
            machine = {"cores": os.cpu_count(), "load": round(before, 1), "python": platform.python_version()}
            report["ways"][name] = row | {"machine": machine}
            FILE.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
