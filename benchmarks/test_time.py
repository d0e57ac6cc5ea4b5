"""Processor seconds of the tests, by file: `python benchmarks/test_time.py [PATHS, options of pytest] [--rows FILE]`.

Wall time on a busy machine says little. Each row has a test's own processor time with that of the processes it started
and waited for; the set-up of a shared fixture is counted where it was made.
"""

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest


def processor_seconds() -> float:
    """Of this process and of the children it waited for."""
    return sum(os.times()[:4])


@dataclass
class Seconds:
    """A plugin that measures what each phase of each test takes."""

    file: Path | None = None
    start: float = field(default_factory=processor_seconds)
    collection: float = 0.0
    rows: list[dict[str, str | float]] = field(default_factory=list)

    def pytest_collection_finish(self) -> None:
        self.collection = processor_seconds() - self.start

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self.measured(item, "setup")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self.measured(item, "call")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield from self.measured(item, "teardown")

    def measured(self, item: pytest.Item, phase: str) -> Iterator[None]:
        start = processor_seconds()
        yield
        row: dict[str, str | float] = {"test": item.nodeid, "phase": phase}
        self.rows.append(row | {"seconds": round(processor_seconds() - start, 3)})
        if self.file:
            with self.file.open("a") as lines:
                lines.write(json.dumps(self.rows[-1]) + "\n")


def by_file(rows: list[dict[str, str | float]]) -> dict[str, tuple[int, float]]:
    """The cases and the processor seconds of each file, the dearest first."""
    cases, seconds = defaultdict(set), defaultdict(float)
    for row in rows:
        file = str(row["test"]).partition("::")[0]
        cases[file].add(row["test"])
        seconds[file] += float(row["seconds"])
    return {file: (len(cases[file]), seconds[file]) for file in sorted(seconds, key=lambda file: -seconds[file])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="paths of tests")
    parser.add_argument("--rows", type=Path, help="append a line of JSON for each phase of each test")
    parser.add_argument("--most", type=int, default=40, help="files to print")
    options, others = parser.parse_known_args()
    plugin = Seconds(options.rows)
    code = pytest.main(["-p", "no:xdist", "-q", *others, *options.tests], plugins=[plugin])
    table = by_file(plugin.rows)
    for file, (cases, seconds) in list(table.items())[: options.most]:
        print(f"{seconds:7.1f} s {cases:5} cases  {file}")
    total = sum(seconds for _, seconds in table.values())
    print(
        f"{total:7.1f} s {sum(cases for cases, _ in table.values()):5} cases, and {plugin.collection:.1f} s to collect"
    )
    raise SystemExit(code)


if __name__ == "__main__":
    main()
