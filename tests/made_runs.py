"""Folders of runs as other versions, kills and edits leave them behind."""

import json

from whyformer.benchmark.manifest import content_digest, read_manifest, write_manifest


def forget_shard(folder, number):
    """As if the run had been stopped before this shard."""
    names = [name for name in read_manifest(folder) if name.endswith(f"/{number:05d}.parquet")]
    for name in names:
        (folder / name).unlink()
    write_manifest(folder, {name: digest for name, digest in read_manifest(folder).items() if name not in names})


def record_digests(folder):
    """As if the files of a run were written as they are now."""
    write_manifest(folder, {name: content_digest(folder / name) for name in read_manifest(folder)})


def make_old(folder):
    """As if the run had been made by a version without a manifest, which noted less of what it was made of."""
    (folder / "manifest.sha256").unlink()
    place = folder / "suite.json"
    document = json.loads(place.read_text())
    digests = {key: value for key, value in document["digests"].items() if key in ("weights", "processor")}
    place.write_text(json.dumps(document | {"digests": digests | {"data": "of names, sizes and times"}}))
    return folder
