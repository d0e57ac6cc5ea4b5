"""A survey killed by SIGKILL, at every stage: what it had written is used, and the result is the same."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from whyformer import load, survey

# Each child is forked before torch has started threads, so that the imports are paid for once.
KILLED = """
import os, signal, sys, torch
from whyformer import load, survey
model, data, journal = sys.argv[1:4]
for stage in sys.argv[4:]:
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        def kill(doing, done, total):
            if doing == stage and done >= 7:
                os.kill(os.getpid(), signal.SIGKILL)
        survey(load(model, device="cpu"), data, method="raw_attention", journal=journal, watch=kill)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    with open(journal, "ab") as file:
        file.write(b'{"kind": "sam')
"""


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(0)
    for number in range(36):
        place = tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(place)
    return tmp_path / "pictures"


def test_a_killed_survey_goes_on_from_every_stage(vit, pictures, tmp_path):
    stages = ("explaining", "clustering", "removing")
    journal = tmp_path / "killed.jsonl"
    subprocess.run([sys.executable, "-c", KILLED, vit, pictures, journal, *stages], check=True)
    lines = [json.loads(line)["kind"] for line in journal.read_text().splitlines()[:-1]]
    assert (lines.count("sample"), lines.count("centres"), lines.count("patches")) == (36, 1, 36)
    assert 7 <= lines.count("effects") < 36
    model, done = load(vit, device="cpu"), []
    settings = {"method": "raw_attention"}
    whole = survey(model, pictures, **settings)
    again = survey(
        model, pictures, **settings, journal=journal, watch=lambda stage, number, _: done.append((stage, number))
    )
    assert replace(again, seconds=0) == replace(whole, seconds=0)
    assert sum(stage == "explaining" and number > 0 for stage, number in done) == 36
    after = [json.loads(line)["kind"] for line in journal.read_text().splitlines()]
    assert (after.count("sample"), after.count("effects")) == (36, 36)
