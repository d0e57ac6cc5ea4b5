"""The tables of the page on installing, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import lines


def compat(file: Path) -> str:
    """A row for each environment that the wheel was installed into."""
    report = json.loads(file.read_text())
    rows = [[row["python"], row["torch"], row["transformers"], _verdict(row), _suite(row)] for row in report["rows"]]
    table = lines(["Python", "torch", "transformers", "explanations that are the same", "the test suite"], rows)
    return f"{table}\n\nThe wheel has {report['wheel_megabytes']:.1f} MB."


def _verdict(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"not run: {row['failure']}"
    models = sorted({name.rsplit("-", 1)[0] for name in row["differ"]})
    others = f"; others: {', '.join(models)}" if models else ""
    return f"{row['same']} of {row['of']}{others}"


def _suite(row: dict[str, Any]) -> str:
    """How the tests ended against the wheel, where they were run."""
    found = row.get("suite")
    if found is None:
        return "not run"
    if "failure" in found:
        return f"not run: {found['failure']}"
    return f"{found['passed']:,} passed, {len(found['failed']):,} failed, {found['skipped']:,} skipped"


def newcomer(file: Path) -> str:
    """The two ways in, command by command, as far as they were measured."""
    if not file.is_file():
        return "Not measured yet."
    rows = []
    for name, way in json.loads(file.read_text())["ways"].items():
        for step in way["steps"]:
            rows.append([name, f"`{step['command']}`", f"{step['seconds']:.0f} s"])
        machine = way["machine"]
        about = f"{machine['cores']} cores, load {machine['load']:.0f} before it"
        rows.append([name, f"**{way['commands']} commands** ({about})", f"**{way['seconds'] / 60:.1f} min**"])
    return lines(["way", "command", "took"], rows)
