"""The folder of a run: which suite it belongs to, its finished shards, and checks of its files."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise, product
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
from whyformer.benchmark.run_digests import CODE, PLUGINS, RUN_VERSION, SUITE_FILE
from whyformer.benchmark.run_plan import DIGESTS, GROWN, RunPlan
from whyformer.benchmark.tables import METHOD_TABLES, TABLES, shard_path, whole_table
from whyformer.errors import WhyformerError
from whyformer.files import is_unfinished, write_whole

UNCHECKED = "The tables were written by a version of Whyformer without digests, so changes cannot be detected."
OF_OLD_VERSION = "was started by a version that did not record all of its inputs"
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
    if not _names_methods(document):
        raise WhyformerError(f"{str(folder)!r} is damaged: {SUITE_FILE} does not name its methods. {NEW_FOLDER}")
    return document


def _names_methods(document: dict[str, Any]) -> bool:
    """Whether the methods have names, and those of each growth come after the ones before."""
    methods, grown = document.get("methods"), document.get(GROWN, [])
    if not isinstance(methods, list) or not all(isinstance(one, dict) and "name" in one for one in methods):
        return False
    if not isinstance(grown, list) or not all(type(number) is int for number in grown):
        return False
    return all(one < other for one, other in pairwise([0, *grown, len(methods)]))


def check_run(folder: Path, document: dict[str, Any]) -> tuple[str, ...]:
    """Raise if the files of a run have changed; return remarks on an accepted one."""
    manifest = read_manifest(folder)
    if manifest is None:
        if has_tables(folder) and not _is_of_old_version(document):
            raise WhyformerError(f"{str(folder)!r} is damaged: {MANIFEST} is missing. {REDO}")
        return (UNCHECKED,) if has_tables(folder) else ()
    for name, fault in damaged_files(folder, manifest).items():
        raise WhyformerError(f"{str(folder)!r} is damaged: {name} {fault}. {REDO}")
    _refuse_strays(folder, manifest, *_size(document))
    return ()


def ungrown_samples(folder: Path, document: dict[str, Any]) -> int:
    """How many samples the methods that were added to a run are still to be measured on."""
    shards, growths = _size(document)
    manifest = read_manifest(folder) or {}
    todo = [
        number
        for number in range(shards)
        if all(name in manifest for name in files_of(number))
        and not all(name in manifest for growth in range(1, growths + 1) for name in files_of(number, growth))
    ]
    return sum(min(document["shard"], document["count"] - number * document["shard"]) for number in todo)


def _size(document: dict[str, Any]) -> tuple[int, int]:
    """The number of shards and of growths."""
    return -(-document["count"] // document["shard"]), len(document.get(GROWN, ()))


def finished_shards(folder: Path, count: int, growths: int = 0) -> tuple[set[tuple[int, int]], list[str]]:
    """The finished shards, each with its growth, and a line about each damaged one that is measured again."""
    lines, finished = [], set()
    try:
        manifest = read_manifest(folder)
    except WhyformerError:
        manifest = None
    if manifest is None and has_tables(folder):
        lines.append(f"{MANIFEST} is missing or damaged: all shards are measured again.")
    manifest = manifest or {}
    _refuse_strays(folder, manifest, count, growths)
    damage = damaged_files(folder, manifest)
    if SUITE_FILE in damage or not manifest:  # its content is that of the plan, which was checked
        write_manifest(folder, manifest | {SUITE_FILE: _digest(folder / SUITE_FILE)})
    for growth, number in product(range(growths + 1), range(count)):
        files = files_of(number, growth)
        faults = [f"{name} {damage[name]}" for name in files if name in damage]
        if faults:
            lines.append(f"{', '.join(faults)}: shard {number} is measured again.")
        elif all(name in manifest for name in files):
            finished.add((number, growth))
    return finished, lines


def claim_folder(folder: Path, plan: RunPlan) -> None:
    """Assign the folder to this plan; raise if it holds results of anything else."""
    document = json.loads(json.dumps(plan.document, default=str))
    place = folder / SUITE_FILE
    known = read_document(folder) if place.is_file() else None
    if known is not None and known != document and has_tables(folder):
        _check_same(folder, known, document)
        if not _is_of_old_version(known):  # what is new: methods, and the digests of their code
            _write_document(folder, document)
        elif _is_whole(folder, document) and len(known["methods"]) == len(document["methods"]):
            _adopt(folder, len(plan.shards))
        else:
            raise WhyformerError(f"{str(folder)!r} {OF_OLD_VERSION}: choose another folder.")
        return
    if known is None and folder.exists() and (not folder.is_dir() or not all(map(is_unfinished, folder.iterdir()))):
        raise WhyformerError(f"{str(folder)!r} is not empty and holds no suite: choose another folder.")
    if folder.is_dir():
        for rest in filter(is_unfinished, folder.iterdir()):
            rest.unlink()
    if known != document:
        (folder / MANIFEST).unlink(missing_ok=True)  # of a run without tables
        _write_document(folder, document)


def _write_document(folder: Path, document: dict[str, Any]) -> None:
    write_whole(folder / SUITE_FILE, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def _is_whole(folder: Path, document: dict[str, Any]) -> bool:
    shards, growths = _size(document)
    parts = product(range(shards), range(growths + 1))
    return all((folder / name).is_file() for number, growth in parts for name in files_of(number, growth))


def _check_same(folder: Path, known: dict[str, Any], document: dict[str, Any]) -> None:
    """Raise if the run has another document, methods that were added to it aside."""
    own = {DIGESTS, GROWN, "methods"}  # of the plan, the methods are those of the run and what is added
    keys = [key for key in {**known, **document} if known.get(key) != document.get(key) and key not in own]
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
    codes = {key: f"the code of {key.removeprefix(CODE)}" for key in known if key.startswith(CODE)}
    if known.get(PLUGINS) != digests.get(PLUGINS):
        codes = {}  # the files of plugins are among those of methods
    # An old version recorded fewer digests, and another one of data.
    noted = parts if RUN_VERSION in known else {key: parts[key] for key in ("weights", "processor") if key in known}
    return [text for key, text in (noted | codes).items() if known.get(key) != digests.get(key)]


def _adopt(folder: Path, shards: int) -> None:
    """Give the finished run of an old version a manifest, if its tables can be read."""
    if read_manifest(folder) is None:
        for table in TABLES:
            whole_table(folder, table)
        names = [SUITE_FILE, *(name for number in range(shards) for name in files_of(number))]
        write_manifest(folder, {name: _digest(folder / name) for name in names})


def _digest(path: Path) -> str:
    digest = content_digest(path)
    if digest is None:
        raise WhyformerError(f"{str(path)!r} cannot be read.")
    return digest


def files_of(number: int, growth: int = 0) -> list[str]:
    """The files of a shard, or of one of its growths, by their paths inside the folder."""
    tables = METHOD_TABLES if growth else TABLES
    return [shard_path(Path(), table, number, growth).as_posix() for table in tables]


def has_tables(folder: Path) -> bool:
    return any(folder.glob("*/*.parquet"))


def _is_of_old_version(document: dict[str, Any]) -> bool:
    return RUN_VERSION not in (document.get(DIGESTS) or {})


def _refuse_strays(folder: Path, manifest: Manifest, shards: int, growths: int) -> None:
    """Raise for Parquet files that do not belong to this run; those of an interrupted shard do."""
    own = {name for number in range(shards) for growth in range(growths + 1) for name in files_of(number, growth)}
    for table in TABLES:
        for path in sorted((folder / table).glob("*.parquet")):
            name = path.relative_to(folder).as_posix()
            if name not in own and name not in manifest:
                raise WhyformerError(f"{str(folder)!r} is damaged: {name} is not a file of this run. Remove it.")
