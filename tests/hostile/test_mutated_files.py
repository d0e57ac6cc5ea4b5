"""Over two thousand damaged and forged files: each shows what it says, or is refused in one line."""

import json
import math
import shutil
import tomllib

import huggingface_hub
import numpy as np
import pytest
from PIL import Image

import whyformer
from hostile.mutations import as_text, damaged, forged
from made_responses import made_response
from whyformer.api.audit import audited
from whyformer.benchmark import read_suite
from whyformer.data import table
from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Boxes, Frames, Patches, Spectrogram, WordPieces
from whyformer.models.loading import load
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

FILM = "the film was not bad"
HIDDEN = ("format", "version", "image", "samples", "dtype")  # not among what `to_dict` gives


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def dead(*_, **__):
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", dead)


def explanation():
    picture = Image.fromarray((np.arange(8 * 12 * 3) % 256).astype(np.uint8).reshape(8, 12, 3))
    sound = whyformer.Sound(np.linspace(-1, 1, 40, dtype=np.float32), 8000)
    tokens = ("a", "great", "film", "so"), (0, 0, 0, 1), ((0, 1), (2, 7), (8, 12), (0, 2))
    parts = {
        "image": Part(Patches(picture, 2, 3, (2.0, 0.0, 10.0, 8.0), (1.0, 1.0, 5.5, 7.0)), np.linspace(0, 1, 6)),
        "regions": Part(Boxes(picture, ((0.5, 1.0, 4.25, 7.0), (2, 0, 12, 8))), np.array([0.1, -0.9])),
        "text": Part(WordPieces(("a great film", "so so"), *tokens), np.array([0.1, 0.9, -0.2, 0.0], np.float16)),
        "sound": Part(Frames(sound, 2, 0.0, 0.0025), np.array([0.5, 0.25], np.float32)),
        "cells": Part(Spectrogram(sound, 2, 0.0, 0.0025, (0.0, 100.0, 200.0)), np.array([0.5, 1, 2, 3], np.float32)),
    }
    return Explanation(parts, "cat", 0.93, "bi_token", "mini-vit", {"first_block": 0}, ("a note",), 0.125)


def continuation():
    part = Part(WordPieces(("a great",), ("a", "Ġgr"), (0, 0), ((0, 1), (1, 4))), np.array([0.25, 0.5], np.float32))
    one = Explanation({"text": part}, "film", None, "rollout", "mini-gpt")
    return Continuation(" film", (one,))


RESULTS = {"explanation": explanation, "continuation": continuation, "response": made_response}


def outcome(action):
    """What the action gives, or None where it is refused in one line; any other error is the test's own."""
    try:
        return action()
    except WhyformerError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2000
    return None


def hidden(shown, said, place=""):
    """Where a result does not say what the file says: every field, and numbers as far as their precision goes."""
    if isinstance(said, dict) and isinstance(shown, dict):
        names = [name for name in said if name not in HIDDEN]
        return [line for name in names for line in hidden(shown.get(name, KeyError), said[name], f"{place}.{name}")]
    if isinstance(said, list) and isinstance(shown, list) and len(said) == len(shown):
        pairs = enumerate(zip(shown, said, strict=True))
        return [line for number, pair in pairs for line in hidden(*pair, f"{place}.{number}")]
    if type(said) in (int, float) and type(shown) in (int, float):
        is_shown = shown == said or math.isclose(shown, said, rel_tol=1e-3, abs_tol=1e-6)
    else:
        is_shown = type(shown) is type(said) and shown == said
    return [] if is_shown or repr(shown) == repr(said) == "nan" else [f"{place}: {shown!r:.80} for {said!r:.80}"]


@pytest.mark.parametrize("kind", RESULTS)
def test_a_forged_result_shows_what_it_says_or_is_refused(kind, tmp_path):
    result, file = RESULTS[kind](), tmp_path / "result.json"
    result.save(file)
    document = json.loads(file.read_text())
    read = 0
    for name, _, changed in forged(document, 260, seed=1):
        file.write_text(as_text(changed))
        loaded = outcome(lambda: type(result).load(file))
        if loaded is not None:
            read += 1
            assert hidden(loaded.to_dict(), changed) == [], name
            if read % 10 == 0:
                str(loaded), loaded._repr_html_()
    assert read > 10


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_damaged_result_shows_what_it_says_or_is_refused(kind, suffix, tmp_path):
    result, file = RESULTS[kind](), tmp_path / f"result{suffix}"
    result.save(file)
    for name, content in damaged(file.read_bytes(), 130, seed=2):
        file.write_bytes(content)
        loaded = outcome(lambda: type(result).load(file))
        if loaded is not None and suffix == ".npz":  # whose content has checksums
            assert loaded == result, name
        elif loaded is not None:
            assert hidden(loaded.to_dict(), json.loads(content)) == [], name


def test_a_forged_audit_is_found_out_or_says_what_is_not_checked(bert, tmp_path):
    file = tmp_path / "film.audit.json"
    whyformer.explain(FILM, str(bert), method="rollout").save(file)
    document = json.loads(file.read_text())
    for name, place, changed in forged(document, 200, seed=3):
        file.write_text(as_text(changed))
        verification = outcome(lambda: whyformer.verify(file))
        if verification is None or not verification.agrees:
            continue
        named = " ".join(verification.not_checked + verification.notes)
        is_named = place[0] in named or ".".join(map(str, place)) in named or f"{place[0]}_" in named
        is_same = audited(whyformer.explain(FILM, str(bert), method="rollout")) == changed.get("explanation")
        assert is_named or (is_same and place[0] in ("question", "model")), name


def test_a_damaged_audit_is_refused_or_says_what_is_not_checked(bert, tmp_path):
    file = tmp_path / "film.audit.json"
    whyformer.explain(FILM, str(bert), method="rollout").save(file)
    content = file.read_bytes()
    for name, bad in damaged(content, 150, seed=4):
        file.write_bytes(bad)
        verification = outcome(lambda: whyformer.verify(file))
        if verification is not None and verification.agrees:
            before, now = json.loads(content), json.loads(bad)
            checked = before.keys() - {"created", "computation"}
            changed = hidden({key: before[key] for key in checked}, {key: now.get(key) for key in checked})
            unsaid = [one for one in changed if one.partition(":")[0].lstrip(".") not in verification.not_checked]
            assert unsaid == [], name


SUITE = """model = "mini-bert"
methods = ["rollout", {name = "bi_token", backward = "libra"}]
protocols = ["text_perturbation"]
seed = 3
samples = 8
[labels]
good = "positive"
[data]
reader = "table"
path = "films.csv"
"""


def test_a_damaged_suite_says_what_its_file_says_or_is_refused(tmp_path):
    file = tmp_path / "suite.toml"
    for name, content in damaged(SUITE.encode(), 400, seed=5):
        file.write_bytes(content)
        suite = outcome(lambda: read_suite(file))
        if suite is not None:
            said = tomllib.loads(content.decode())
            document = suite.document
            for key in ("model", "labels", "seed", "samples", "shard", "batch"):
                assert document[key] == said.get(key, document[key]), name
            assert hidden(document["data"], {key: value for key, value in said["data"].items() if key != "path"}) == []


@pytest.mark.parametrize("content", ["a = " + "[" * 5000, "a = " + "[" * 5000 + "]" * 5000, "a = " + "{b=" * 900])
def test_a_suite_that_is_nested_deeply_is_one_line(tmp_path, content):
    (tmp_path / "suite.toml").write_text(content)
    assert outcome(lambda: read_suite(tmp_path / "suite.toml")) is None


TEXTS = [(f"film {number} was {'great' if number % 2 else 'bad'}", f"label{number % 3}") for number in range(12)]
TABLES = {
    ".csv": "text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS),
    ".tsv": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in TEXTS),
    ".jsonl": "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in TEXTS),
    ".json": json.dumps([{"text": text, "label": label} for text, label in TEXTS]),
}


@pytest.mark.parametrize("suffix", TABLES)
def test_a_damaged_table_gives_rows_that_are_in_it_or_is_refused(tmp_path, suffix):
    file = tmp_path / f"films{suffix}"
    for name, content in damaged(TABLES[suffix].encode(), 130, seed=6):
        file.write_bytes(content)
        rows = outcome(lambda: list(table(file)))
        for row in rows or ():
            is_there = row.text in content.decode("utf-8-sig") if suffix in (".csv", ".tsv") else True
            assert is_there, name


def small_changes(file, count, seed):
    """The file of a model folder, forged, or damaged where its header is."""
    if file.suffix == ".json":
        return [as_text(changed).encode() for _, _, changed in forged(json.loads(file.read_text()), count, seed)]
    content = file.read_bytes()
    return [changed + content[3000:] for _, changed in damaged(content[:3000], count, seed)]


@pytest.mark.parametrize("which", ["bert", "vit"])
def test_a_changed_model_folder_is_explained_or_refused(which, request, tmp_path):
    original = request.getfixturevalue(which)
    folder = shutil.copytree(original, tmp_path / "model")
    example = FILM if which == "bert" else Image.new("RGB", (32, 32), "red")
    names = ["config.json", "tokenizer_config.json", "tokenizer.json", "preprocessor_config.json", "model.safetensors"]
    for file in (folder / name for name in names if (folder / name).is_file()):
        content = file.read_bytes()
        for changed in small_changes(file, 60, seed=7):
            file.write_bytes(changed)
            outcome(lambda: whyformer.explain(example, load(folder, device="cpu"), method="rollout"))
        file.write_bytes(content)
    again, before = (
        whyformer.explain(example, load(one, device="cpu"), method="rollout") for one in (folder, original)
    )
    np.testing.assert_array_equal(again.scores, before.scores)
