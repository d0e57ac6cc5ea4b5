"""Does a survey of a real audio model find what its answers depend on: a word, or a tone that was planted?

    python benchmarks/sound_surveys.py --encoder FOLDER [--sounds FILE.npz] [--device cuda]

Spoken sentences (espeak-ng) begin with "yes" or "no", and go on with the same words for both. A linear head on the
mean last state of Whisper's encoder learns to tell them: once from sentences alone, and once from sentences that end
with a tone whose correlation with the label is .8. Both are surveyed over other sentences. The word is in the first
quarter, and the tone in the last tenth. Figures are written to benchmarks/results/sound_surveys.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoFeatureExtractor, WhisperConfig, WhisperForAudioClassification, WhisperModel

from whyformer import Sound, survey
from whyformer.surveys.survey_files import driver_row

FILE = Path(__file__).parent / "results" / "sound_surveys.json"
LABELS = ("no", "yes")
TRAINED, SURVEYED = 160, 60
STRENGTH = 0.8
SPOKEN_RATE, RATE = 8_000, 16_000
TONE, HERTZ, LOUDNESS = 0.2, 880.0, 0.15  # seconds, pitch, amplitude
KEEP = ("cue", "kind", "answer", "support", "drop", "excess", "excess_low", "excess_high", "flips", "random_flips", "q")


def spoken(count: int) -> dict[str, np.ndarray]:
    """Sentences of both labels in turn, the same each time."""
    import random

    from espeak import speak
    from spoken import DID, THINGS, WHO

    sounds = {}
    for number in range(count):
        drawn = random.Random(number)
        text = f"{LABELS[number % 2]}. {drawn.choice(WHO)} {drawn.choice(DID)} {drawn.choice(THINGS)}."
        speech = speak(text, words_a_minute=drawn.randint(130, 160))
        places = np.arange(0, len(speech.samples) - 1, speech.rate / SPOKEN_RATE)
        samples = np.interp(places, np.arange(len(speech.samples)), speech.samples)
        sounds[str(number)] = np.round(32767 * samples).astype(np.int16)
    return sounds


def with_tones(sounds: Sequence[np.ndarray], strength: float, seed: int) -> list[np.ndarray]:
    """The sounds, some of which end with a tone; of "yes" more than of "no"."""
    random = np.random.default_rng(seed)
    tone = LOUDNESS * np.sin(2 * np.pi * HERTZ * np.arange(round(TONE * RATE)) / RATE)
    changed = []
    for number, samples in enumerate(map(resampled, sounds)):
        has_tone = random.random() < (1 + strength * (2 * (number % 2) - 1)) / 2
        changed.append(np.concatenate([samples, tone if has_tone else np.zeros(len(tone))]).astype(np.float32))
    return changed


def resampled(samples: np.ndarray) -> np.ndarray:
    places = np.arange(0, len(samples) - 1, SPOKEN_RATE / RATE)
    return np.interp(places, np.arange(len(samples)), samples)


def states(encoder: Any, extractor: Any, sounds: Sequence[np.ndarray], device: str) -> torch.Tensor:
    """The mean last state of each sound."""
    rows = []
    for samples in sounds:
        inputs = extractor(samples, sampling_rate=RATE, return_tensors="pt").to(device)
        with torch.no_grad():
            rows.append(encoder(inputs["input_features"]).last_hidden_state[0].mean(dim=0).float().cpu())
    return torch.stack(rows)


def classifier(source: WhisperModel, rows: torch.Tensor, labels: torch.Tensor) -> WhisperForAudioClassification:
    """Whisper's encoder with a logistic head that was fitted to mean states."""
    config = WhisperConfig(
        **{
            **source.config.to_dict(),
            "classifier_proj_size": source.config.d_model,
            "id2label": dict(enumerate(LABELS)),
            "label2id": {name: number for number, name in enumerate(LABELS)},
        }
    )
    model = WhisperForAudioClassification(config)
    model.encoder.load_state_dict(source.encoder.state_dict())
    mean, spread = rows.mean(dim=0), rows.std(dim=0) + 1e-6
    head = nn.Linear(rows.shape[1], 2)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=300)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        logits = head((rows - mean) / spread)
        value = nn.functional.cross_entropy(logits, labels) + 0.02 * head.weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    with torch.no_grad():
        model.projector.weight.copy_(torch.diag(1 / spread))
        model.projector.bias.copy_(-mean / spread)
        model.classifier.weight.copy_(head.weight)
        model.classifier.bias.copy_(head.bias)
    return model.eval()


def run(encoder: Path, sounds: Sequence[np.ndarray], device: str, trained: int) -> dict[str, Any]:
    torch.manual_seed(0)
    source, extractor = WhisperModel.from_pretrained(encoder), AutoFeatureExtractor.from_pretrained(encoder)
    results: dict[str, Any] = {"encoder": encoder.name, "trained": trained, "surveyed": len(sounds) - trained}
    for name, strength in (("planted", STRENGTH), ("clean", 0.0)):
        start = time.perf_counter()
        own = with_tones(sounds, strength, 0)
        rows = states(source.encoder.to(device), extractor, own[:trained], device)
        model = classifier(source.to("cpu"), rows, torch.arange(trained) % 2).to(device)
        data = [(Sound(one, RATE), LABELS[number % 2]) for number, one in enumerate(own)][trained:]
        result = survey(model, data, processor=extractor, should_ignore=["end"])
        print(name, result, flush=True)
        results[name] = {
            "wrong": result.wrong,
            "seconds": round(time.perf_counter() - start, 1),
            "method": result.method,
            "tested": len(result.tested),
            "drivers": [{key: driver_row(one)[key] for key in KEEP} for one in result.drivers],
            "shortcuts": sorted({one.cue.name for one in result.shortcuts}),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="the folder of a Whisper model")
    parser.add_argument("--sounds", type=Path, help="an .npz file that keeps the sentences, so that none are spoken")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trained", type=int, default=TRAINED)
    parser.add_argument("--surveyed", type=int, default=SURVEYED)
    parser.add_argument("--results", type=Path, default=FILE)
    options = parser.parse_args()
    if options.sounds is not None and options.sounds.is_file():
        kept = dict(np.load(options.sounds))
    else:
        kept = spoken(TRAINED + SURVEYED)
        if options.sounds is not None:
            np.savez_compressed(options.sounds, **kept)
    sounds = [kept[str(number)] / np.float32(32768) for number in range(options.trained + options.surveyed)]
    results = run(options.encoder, sounds, options.device, options.trained)
    options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
