"""What real models get wrong, as figures for their cards (docs/real_cards.toml).

    python benchmarks/real_limits.py --out benchmarks/results/real_limits.json [--spoken spoken.npz]

Sentence encoders: how often a sentence is closer to its own negation than to what says the same in other words.
Whisper: the words of made-up sentences that it gets wrong, written down by itself, and whether it writes words for
silence and faint noise. DINOv2: patches whose last state is several times as large as the median of its photograph.
"""

from __future__ import annotations

import argparse
import json
import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer, WhisperForConditionalGeneration

from real_models import model_folder
from spoken import NUMBERS, RATE, read_utterances, utterances
from whyformer.data import photos

ENCODERS = ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2")
LISTENERS = ("whisper-base", "whisper-tiny.en")
# A statement, what says the same in other words, and its negation.
STATEMENTS = (
    ("The shop opens on Sundays.", "You can buy there at the weekend, too.", "The shop does not open on Sundays."),
    ("The river is frozen.", "Ice covers the stream.", "The river is not frozen."),
    ("She likes her new job.", "Her current work pleases her.", "She does not like her new job."),
    ("The museum was robbed.", "Thieves broke into the gallery.", "The museum was not robbed."),
    ("Taxes will rise in spring.", "From April on people owe more.", "Taxes will not rise in spring."),
    ("The patient has recovered.", "He is healthy again.", "The patient has not recovered."),
    ("The train was late.", "We arrived after the stated time.", "The train was not late."),
    ("Wolves live in these woods.", "The forest is home to wild predators.", "No wolves live in these woods."),
    ("The soup is too salty.", "Somebody put much salt into the broth.", "The soup is not too salty."),
    ("The bridge is safe.", "One can cross without danger.", "The bridge is not safe."),
    ("He paid the bill.", "The invoice was settled by him.", "He did not pay the bill."),
    ("The book was translated.", "There are editions in other languages.", "The book was never translated."),
)
LARGE = 2.0  # times the median norm of a photograph's patches


@torch.no_grad()
def negations(folder: Path) -> dict[str, Any]:
    """In how many statements the negation is the closer one, and the mean cosines."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer([text for one in STATEMENTS for text in one], padding=True, return_tensors="pt")
    mask = batch["attention_mask"][..., None]
    states = (model(**batch).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
    own, same, negated = F.normalize(states, dim=1).unflatten(0, (-1, 3)).unbind(dim=1)
    to_same, to_negated = (own * same).sum(dim=1), (own * negated).sum(dim=1)
    return {
        "statements": len(STATEMENTS),
        "negation closer than paraphrase": int((to_negated > to_same).sum()),
        "cosine of a negation": round(float(to_negated.mean()), 2),
        "cosine of a paraphrase": round(float(to_same.mean()), 2),
    }


@torch.no_grad()
def transcripts(folder: Path, spoken: Path | None, count: int) -> dict[str, Any]:
    """Words that are missing or others in its own transcripts, and what it writes for silence and faint noise."""
    model, processor = (
        WhisperForConditionalGeneration.from_pretrained(folder).eval(),
        AutoProcessor.from_pretrained(folder),
    )
    how = {"language": "en", "task": "transcribe"} if model.generation_config.is_multilingual else {}

    def written(samples: np.ndarray, rate: int) -> str:
        features = processor(samples, sampling_rate=rate, return_tensors="pt")["input_features"]
        tokens = model.generate(features, max_new_tokens=40, **how)
        return str(processor.batch_decode(tokens, skip_special_tokens=True)[0]).strip()

    right = total = digits = 0
    for one in read_utterances(spoken, count) if spoken else utterances(count):
        samples, rate = (one.samples, one.rate) if one.rate == RATE else _at_rate(one.samples, one.rate)
        text = written(samples, rate)
        said, read = words(one.text), words(text)
        blocks = SequenceMatcher(None, said, read, autojunk=False).get_matching_blocks()
        right, total = right + sum(block.size for block in blocks), total + len(said)
        digits += any(part.isdigit() for part in re.findall(r"\w+", text))
    random = np.random.default_rng(0)
    quiet = [np.zeros(5 * RATE, np.float32)]
    quiet += [random.normal(0, 0.003, 5 * RATE).astype(np.float32) for _ in range(7)]
    return {
        "sentences": count,
        "words": total,
        "words written rightly": right,
        "sentences with digits": digits,
        "sounds without speech": len(quiet),
        "of these with words": sum(bool(words(written(samples, RATE))) for samples in quiet),
    }


def words(text: str) -> list[str]:
    """The words of a text, numbers up to twelve spelled out."""
    names = {str(number): name for number, name in NUMBERS.items()}
    return [names.get(word, word) for word in re.findall(r"[a-z']+|\d+", text.lower())]


def _at_rate(samples: np.ndarray, rate: int) -> tuple[np.ndarray, int]:
    from scipy.signal import resample_poly

    return resample_poly(samples, RATE, rate).astype(np.float32), RATE


@torch.no_grad()
def large_states(folder: Path, data: Path, count: int) -> dict[str, Any]:
    """Photographs with a patch whose state is large, and the share of such patches."""
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)
    examples = photos(data)
    places = np.random.default_rng(0).permutation(len(examples))[:count]
    found = []
    for place in places:
        pixels = processor(images=examples[int(place)].image.convert("RGB"), return_tensors="pt")["pixel_values"]
        # Before the last norm, which hides sizes.
        norms = model(pixels, output_hidden_states=True).hidden_states[-1][0, 1:].norm(dim=1)
        found.append((norms > LARGE * norms.median()).float().mean().item())
    return {
        "photographs": count,
        "photographs with a large state": sum(share > 0 for share in found),
        "share of patches": round(float(np.mean(found)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--spoken", type=Path, help="utterances of real_speech_times.py synthesise")
    parser.add_argument("--photos", type=Path, help="the folder of the photographs")
    parser.add_argument("--count", type=int, default=24, help="sentences and photographs")
    options = parser.parse_args()
    found: dict[str, Any] = {name: negations(model_folder(name)) for name in ENCODERS}
    if options.photos is not None:
        found["dinov2-small"] = large_states(model_folder("dinov2-small"), options.photos, options.count)
    for name in LISTENERS:
        found[name] = transcripts(model_folder(name), options.spoken, options.count)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
