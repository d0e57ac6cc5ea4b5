"""The folder of a run: which suite it belongs to, its finished shards, and checks of its files."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from whyformer.benchmark.manifest import (
    MANIFEST,
    REDO,
    Manifest,
    content_digest,
    damaged_files,
    read_manifest,
    write_manifest,
)
from whyformer.benchmark.run_digests import PLUGINS, RUN_VERSION, SUITE_FILE
from whyformer.benchmark.run_plan import DIGESTS, RunPlan
from whyformer.benchmark.tables import TABLES, shard_path, whole_table
from whyformer.errors import WhyformerError
from whyformer.files import is_unfinished, write_whole

UNCHECKED = "The tables were written by a version of Whyformer without digests, so changes cannot be detected."
NEW_FOLDER = "To measure again, choose another folder."


def read_document(folder: Path) -> dict[str, Any]:
    """The suite of a run, with everything that determined its results."""
    place = folder / SUITE_FILE
    if not place.is_file():
        raise WhyformerError(
            f"{str(folder)!r} holds no run: there is no {SUITE_FILE}. Start with `whyformer evaluate`."
        )
    try:
        document: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WhyformerError(f"{str(folder)!r} is damaged: {SUITE_FILE} cannot be read. {NEW_FOLDER}") from error
    numbers = [document.get(key) for key in ("count", "shard", "seed")] if isinstance(document, dict) else []
    if not numbers or not all(type(number) is int for number in numbers):
        raise WhyformerError(f"{str(folder)!r} is damaged: {SUITE_FILE} holds no suite. {NEW_FOLDER}")
    return document


def check_run(folder: Path, document: dict[str, Any]) -> tuple[str, ...]:
    """Raise if the files of a run have changed; return remarks on an accepted one."""
    manifest = read_manifest(folder)
    if manifest is None:
        if _has_tables(folder) and not _is_of_old_version(document):
            raise WhyformerError(f"{str(folder)!r} is damaged: {MANIFEST} is missing. {REDO}")
        return (UNCHECKED,) if _has_tables(folder) else ()
    for name, fault in damaged_files(folder, manifest).items():
        raise WhyformerError(f"{str(folder)!r} is damaged: {name} {fault}. {REDO}")
    _refuse_strays(folder, manifest, -(-document["count"] // document["shard"]))
    return ()


def finished_shards(folder: Path, count: int) -> tuple[set[int], list[str]]:
    """The finished shards, and a line about each damaged one that is measured again."""
    lines, finished = [], set()
    try:
        manifest = read_manifest(folder)
    except WhyformerError:
        manifest = None
    if manifest is None and _has_tables(folder):
        lines.append(f"{MANIFEST} is missing or damaged: all shards are measured again.")
    manifest = manifest or {}
    _refuse_strays(folder, manifest, count)
    damage = damaged_files(folder, manifest)
    if SUITE_FILE in damage or not manifest:  # its content is that of the plan, which was checked
        write_manifest(folder, manifest | {SUITE_FILE: _digest(folder / SUITE_FILE)})
    for number in range(count):
        files = _files_of(number)
        faults = [f"{name} {damage[name]}" for name in files if name in damage]
        if faults:
            lines.append(f"{', '.join(faults)}: shard {number} is measured again.")
        elif all(name in manifest for name in files):
            finished.add(number)
    return finished, lines


def claim_folder(folder: Path, plan: RunPlan) -> None:
    """Assign the folder to this plan; raise if it holds results of anything else."""
    document = json.loads(json.dumps(plan.document, default=str))
    place = folder / SUITE_FILE
    known = read_document(folder) if place.is_file() else None
    if known is not None and known != document and _has_tables(folder):
        _check_same(folder, known, document, len(plan.shards))
        return
    if known is None and folder.exists() and (not folder.is_dir() or not all(map(is_unfinished, folder.iterdir()))):
        raise WhyformerError(f"{str(folder)!r} is not empty and holds no suite: choose another folder.")
    if folder.is_dir():
        for rest in filter(is_unfinished, folder.iterdir()):
            rest.unlink()
    if known != document:
        (folder / MANIFEST).unlink(missing_ok=True)  # of a run without tables
        write_whole(place, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def _check_same(folder: Path, known: dict[str, Any], document: dict[str, Any], shards: int) -> None:
    """Raise if the run has another document; adopt a finished one of an old version."""
    keys = [key for key in {**known, **document} if known.get(key) != document.get(key) and key != DIGESTS]
    if keys:
        what = ", ".join("the data" if key == "names" else key for key in keys if key != "count")
        raise WhyformerError(f"{str(folder)!r} holds the results of another suite ({what}): choose another folder.")
    changes = _changes(known.get(DIGESTS) or {}, document)
    if changes:
        start = datetime.fromtimestamp((folder / SUITE_FILE).stat().st_mtime).strftime("%Y-%m-%d %H:%M")
        raise WhyformerError(
            f"{str(folder)!r} holds results from before {' and '.join(changes)} changed (started {start}): choose "
            "another folder."
        )
    if not all((folder / name).is_file() for number in range(shards) for name in _files_of(number)):
        raise WhyformerError(
            f"{str(folder)!r} was started by a version that did not record all of its inputs: choose another folder."
        )
    _adopt(folder, shards)


def _changes(known: dict[str, str], document: dict[str, Any]) -> list[str]:
    """Differences from the digests noted when the run was started."""
    digests, model = document[DIGESTS], document["model"]
    parts = {
        "weights": f"the weights of {model!r}",
        "processor": f"the configuration or processor of {model!r}",
        "data": f"the data of {document['data']['reader']!r}",
        PLUGINS: "the code of its plugins",
        RUN_VERSION: f"the version of whyformer ({known.get(RUN_VERSION)}, now {digests.get(RUN_VERSION)})",
    }
    # An old version recorded fewer digests, and another one of data.
    noted = parts if RUN_VERSION in known else {key: parts[key] for key in ("weights", "processor") if key in known}
    return [text for key, text in noted.items() if known.get(key) != digests.get(key)]


def _adopt(folder: Path, shards: int) -> None:
    """Give the finished run of an old version a manifest, if its tables can be read."""
    if read_manifest(folder) is None:
        for table in TABLES:
            whole_table(folder, table)
        names = [SUITE_FILE, *(name for number in range(shards) for name in _files_of(number))]
        write_manifest(folder, {name: _digest(folder / name) for name in names})


def _digest(path: Path) -> str:
    digest = content_digest(path)
    if digest is None:
        raise WhyformerError(f"{str(path)!r} cannot be read.")
    return digest


def _files_of(number: int) -> list[str]:
    """The files of a shard, by their paths inside the folder."""
    return [shard_path(Path(), table, number).as_posix() for table in TABLES]


def _has_tables(folder: Path) -> bool:
    return any(folder.glob("*/*.parquet"))


def _is_of_old_version(document: dict[str, Any]) -> bool:
    return RUN_VERSION not in (document.get(DIGESTS) or {})


def _refuse_strays(folder: Path, manifest: Manifest, shards: int) -> None:
    """Raise for Parquet files that do not belong to this run; those of an interrupted shard do."""
    own = {name for number in range(shards) for name in _files_of(number)}
    for table in TABLES:
        for path in sorted((folder / table).glob("*.parquet")):
            name = path.relative_to(folder).as_posix()
            if name not in own and name not in manifest:
                raise WhyformerError(f"{str(folder)!r} is damaged: {name} is not a file of this run. Remove it.")
