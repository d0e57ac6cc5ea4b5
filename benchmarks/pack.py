"""Pack the photographs and texts that the suites of the leaderboard read, for a machine that gets no more.

    python benchmarks/pack.py DATA PACK.tar.gz

The whole index of the photographs, with those that the suites draw, so that they draw the same; the test reviews of
ERASER; and 20 Newsgroups' test posts, of which those that are not drawn are empty.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import tarfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from fill import HERE, fill_document
from whyformer.benchmark import make_suite
from whyformer.benchmark.run_plan import RunPlan, make_plan
from whyformer.data.dataset_files import member

INDEX = "photos/index.csv"


def plans(data: Path) -> Iterator[RunPlan]:
    """The plans of the suites that read files, without their models."""
    for name in fill_document()["order"]:
        document = tomllib.loads((HERE / "suites" / f"{name}.toml").read_text(encoding="utf-8"))
        if "folder" in document["data"]:
            yield make_plan(make_suite(document), data, with_digests=False)


def photographs(data: Path, used: Iterable[RunPlan]) -> Iterator[tuple[str, str]]:
    """The archive and the name of each picture and mask that is read."""
    rows = {row["image"]: row for row in csv.DictReader(io.StringIO((data / INDEX).read_text()))}
    names = {name for plan in used for name in pictures_of(plan)}
    for row in (row for name, row in rows.items() if name in names):
        yield from ((row["shard"], row[key]) for key in ("image", "mask") if row[key])


def pictures_of(plan: RunPlan) -> Iterator[str]:
    """The names of the photographs of a plan; a grid is made of four."""
    read = plan.examples.read
    for number in (number for shard in plan.shards for number in shard):
        if plan.suite.data.name == "photos":
            yield plan.examples.names[number]
        elif plan.suite.data.name == "photo_grids":
            single, _, rows = read.args
            yield from (single.names[cell] for cell in rows[number][0])


def files(data: Path) -> Iterator[tuple[str, bytes]]:
    """The path and the content of each file of the pack."""
    used = list(plans(data))
    yield INDEX, (data / INDEX).read_bytes()
    by_archive: dict[str, list[str]] = {}
    for archive, name in photographs(data, used):
        by_archive.setdefault(archive, []).append(name)
    for archive, names in by_archive.items():
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            add(tar, ((name, member(data / "photos" / archive, name)) for name in names))
        yield f"photos/{archive}", content.getvalue()
    reviews = (data / "movies/test.jsonl").read_text()
    yield "movies/test.jsonl", reviews.encode()
    for line in map(json.loads, reviews.splitlines()):
        spans = [span["docid"] for group in line["evidences"] for span in group]
        name = f"movies/docs/{spans[0] if spans else line['annotation_id']}"
        yield name, (data / name).read_bytes()
    for plan in (plan for plan in used if plan.suite.data.name == "newsgroups"):
        drawn = {number for shard in plan.shards for number in shard}
        for number, name in enumerate(plan.examples.names):
            path = f"20news/20news-bydate-test/{name}"
            yield path, (data / path).read_bytes() if number in drawn else b""


def add(tar: tarfile.TarFile, files: Iterable[tuple[str, bytes]]) -> None:
    for name, content in files:
        about = tarfile.TarInfo(name)
        about.size = len(content)
        tar.addfile(about, io.BytesIO(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("pack", type=Path)
    options = parser.parse_args()
    with tarfile.open(options.pack, "w:gz") as tar:
        add(tar, files(options.data))
    print(f"{options.pack}: {options.pack.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
