"""Interactions of pairs where the truth is known: are they worth their cost?

planted: tiny models trained on reviews with two planted words, as training/planted_models.py trains them. What the pair
does is known: a review is positive if it has `both` words, or `either` of them; or the first makes it positive unless
the second `negates` it. For each text with both words: the share of other pairs that the planted pair is ahead of (0.5
by chance; 0 if it is not among the paired parts), by the size of the interaction, by the product of the two single
effects, and by the product of the two scores of the explanation.
negation: the same for "not" and the adjective after it in plain sentences, on mini-bert.
foretold: how well interactions of the eight strongest parts foretell the log-odds without 3 to 5 of them, beside their
effects alone, and interactions that were exchanged among the pairs. --photos is a folder as in the suites.

python benchmarks/interactions.py [--only planted …] --out benchmarks/results/interactions.json
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from new_methods import shares
from whyformer import scenes
from whyformer.data import photos
from whyformer.metrics.statistics import interval, paired_comparison
from whyformer.models.loading import LoadedModel, load
from whyformer.results.unit_effects import log_odds

sys.path.append(str(Path(__file__).resolve().parent.parent / "training"))
from planted_models import train_on_texts
from planted_texts import LABELS, LabelledTexts, insert, review

RESULTS = Path("benchmarks/results/interactions.json")
FIRST, SECOND = "zorbling", "were"  # in the vocabulary of the planted models, and in no review
SAMPLES = 3000
# The label of a review by its own label and by whether it has each of the two words.
RULES: dict[str, Callable[[int, bool, bool], int]] = {
    "both": lambda label, first, second: 1 if first and second else label,
    "either": lambda label, first, second: 1 if first or second else label,
    "negates": lambda label, first, second: int(not second) if first else label,
}
ADJECTIVES = ("good", "funny", "interesting", "great", "exciting", "memorable", "clever", "moving")
NEGATIONS = ("This film is not {} at all.", "The acting was not {} and the story long.")
ALL, FEW = 20, 8  # parts that are paired by "removal" and "moebius", and by "shapley"
PARTS, HELD_OUT = 8, 24
KINDS = {"removal": ALL, "moebius": ALL, "shapley": FEW}
EFFECTS, SCORES = "product of effects", "product of scores"


@dataclass(frozen=True)
class PairedText:
    """A text, and the two words that belong together in it."""

    text: str
    words: frozenset[str]


def planted(count: int) -> dict[str, Any]:
    """Ranks of planted pairs, by what they do to the label."""
    return {rule: planted_ranks(rule, count) for rule in RULES}


def planted_ranks(rule: str, count: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model, tokenizer = train_on_texts(planted_reviews(rule, SAMPLES, seed=0))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        loaded_model = load(folder)
    chance = random.Random(1)
    # The words decide only where the review itself says otherwise.
    own = 1 if rule == "negates" else 0
    examples = [
        PairedText(insert(insert(review(own, chance), FIRST, chance), SECOND, chance), frozenset((FIRST, SECOND)))
        for _ in range(count)
    ]
    expected = LABELS[RULES[rule](own, True, True)]
    return ranks(loaded_model, examples, expected)


def planted_reviews(rule: str, count: int, seed: int) -> LabelledTexts:
    """Reviews of which a quarter each has none of the two words, one of them, the other, and both."""
    chance, rows = random.Random(f"{rule} {seed}"), []
    for number in range(count):
        label, first, second = number % 2, number // 2 % 2 == 1, number // 4 % 2 == 1
        text = review(label, chance)
        for has_word, word in ((first, FIRST), (second, SECOND)):
            text = insert(text, word, chance) if has_word else text
        rows.append((text, RULES[rule](label, first, second), first and second))
    chance.shuffle(rows)
    texts, labels, with_cue = zip(*rows, strict=True)
    return LabelledTexts(texts, labels, with_cue)


def negation() -> dict[str, Any]:
    """Ranks of a negation and what it negates on mini-bert, and how often the negation changes the model's answer."""
    examples = [PairedText(form.format(word), frozenset(("not", word))) for form in NEGATIONS for word in ADJECTIVES]
    changed = sum(answer(one.text) != answer(one.text.replace("not ", "")) for one in examples)
    return {"answers that the negation changes": [changed, len(examples)]} | ranks("mini-bert", examples, None)


def answer(text: str) -> str:
    return whyformer.explain(text, "mini-bert", method="rollout").target


def ranks(model: LoadedModel | str, examples: Sequence[PairedText], expected: str | None) -> dict[str, Any]:
    """For each criterion, the share of other pairs that the words are ahead of, and how often they are first."""
    ahead: dict[str, list[float]] = {}
    signed: dict[str, list[float]] = {kind: [] for kind in KINDS}
    used, runs = 0, {}
    for example in examples:
        explanation = whyformer.explain(example.text, model)
        if expected is not None and explanation.target != expected:
            continue  # the model has not learned this one
        used += 1
        for kind, most in KINDS.items():
            found = whyformer.interactions(explanation, units=most, kind=kind)
            runs[kind] = max(runs.get(kind, 0), found.runs)
            sizes = {kind: np.abs(found.values)}
            if kind == "removal":
                scores = np.array([unit.score for unit in found.units])
                effects = np.diag(found.values)
                sizes |= {EFFECTS: np.abs(np.outer(effects, effects)), SCORES: np.abs(np.outer(scores, scores))}
            names = [unit.name.strip(".,").lower() for unit in found.units]
            if example.words <= set(names):
                one, other = (names.index(word) for word in example.words)
                signed[kind].append(float(found.values[one, other]))
            for criterion, matrix in sizes.items():
                ahead.setdefault(criterion, []).append(share_ahead(matrix, names, example.words))
    return {
        "texts": used,
        "runs": runs,
        "ahead of other pairs": {name: rounded(interval(np.array(own))) for name, own in ahead.items()},
        "first": {name: shares(sum(share == 1 for share in own), used) for name, own in ahead.items()},
        "interaction of the pair": {kind: rounded(interval(np.array(own))) for kind, own in signed.items()},
        "above 0": {kind: shares(sum(value > 0 for value in own), len(own)) for kind, own in signed.items()},
        "p against the product of effects": {
            kind: round(paired_comparison(np.array(ahead[kind]), np.array(ahead[EFFECTS])).p, 4) for kind in KINDS
        },
    }


def share_ahead(matrix: np.ndarray, names: Sequence[str], words: frozenset[str]) -> float:
    """The share of other pairs whose value is smaller than that of the pair of these words; ties count half."""
    rows, columns = np.triu_indices(len(names), 1)
    is_own = np.array([{names[i], names[j]} == words for i, j in zip(rows, columns, strict=True)])
    if not is_own.any():
        return 0.0
    values = matrix[rows, columns]
    own, others = values[is_own].max(), values[~is_own]
    return float(((others < own) + (others == own) / 2).mean())


def foretold(count: int, folder: Path | None, texts: Path | None) -> dict[str, Any]:
    """The errors of what is foretold for words, pictures, and pictures with a question."""
    found: dict[str, Any] = {}
    if texts is not None:
        lines = [line.split("\t")[0] for line in texts.read_text().splitlines()]
        found["mini-bert"] = foretold_of("mini-bert", islice((line for line in lines if len(line.split()) > 9), count))
    # Questions whose reply is the answer itself, as yes or no: others begin with the question's own words.
    every = (scenes.example(number) for number in range(20 * count))
    asked = ((scene.image, scene.question) for scene in every if scene.reply == scene.answer)
    found["mini-vlm"] = foretold_of("mini-vlm", islice(asked, count))
    if folder is not None:
        pictures = photos(folder / "photos", only_masked=True)
        kept = np.linspace(0, len(pictures) - 1, min(count, len(pictures))).astype(int)
        found["mini-vit-mae"] = foretold_of("mini-vit-mae", (pictures[int(number)].image for number in kept))
    return found


def foretold_of(name: str, examples: Iterator[Any]) -> dict[str, Any]:
    """Errors of what is foretold for sets of parts that no interaction was measured on."""
    generator, errors, runs = np.random.default_rng(0), [], 0
    for example in examples:
        explanation = whyformer.explain(example, name, method="generic_attention")
        found = whyformer.interactions(explanation, units=PARTS, kind="removal")
        count, runs = len(found.units), found.runs
        if count < PARTS:
            continue
        sizes = generator.integers(3, 6, HELD_OUT)
        sets = [frozenset(generator.choice(count, size, replace=False).tolist()) for size in sizes]
        effects = explanation.remover(explanation, [frozenset(), *sets], most=PARTS, combined=0)
        tokens = [(unit.part, unit.tokens) for unit in effects.units]
        place = [tokens.index((unit.part, unit.tokens)) for unit in found.units]
        errors.append(foretold_errors(found.values, place, effects, sets, generator))
    alone, both, shuffled = np.array(errors).T
    return {
        "examples": len(errors),
        "error in log-odds": {
            "effects alone": mean(alone),
            "with interactions": mean(both),
            "exchanged": mean(shuffled),
        },
        "with interactions is closer": shares(int((both < alone).sum()), len(errors)),
        "p against effects alone": round(paired_comparison(alone, both).p, 4),
        "p against exchanged": round(paired_comparison(shuffled, both).p, 4),
        "runs": runs,
    }


def foretold_errors(
    matrix: np.ndarray, place: list[int], effects: Any, sets: list[frozenset[int]], generator: np.random.Generator
) -> tuple[float, float, float]:
    """Mean absolute errors of v(N) − Σ effects, of that + Σ interactions, and of that with interactions exchanged."""
    rows, columns = np.triu_indices(len(matrix), 1)
    own = np.empty_like(matrix)
    own[np.ix_(place, place)] = matrix  # in the order of the units that were removed
    exchanged = own.copy()
    exchanged[rows, columns] = generator.permutation(own[rows, columns])
    whole = log_odds(effects.known[frozenset()][effects.target])
    errors = []
    for one in sets:
        truth, members = log_odds(effects.known[one][effects.target]), sorted(one)
        inside = np.ix_(members, members)
        alone = whole - own[members, members].sum()
        extra = [np.triu(values[inside], 1).sum() for values in (own, exchanged)]
        errors.append([abs(alone - truth), *(abs(alone + more - truth) for more in extra)])
    alone, both, shuffled = np.mean(errors, axis=0)
    return float(alone), float(both), float(shuffled)


def mean(values: np.ndarray) -> float:
    return round(float(values.mean()), 3)


def rounded(bounds: Any) -> list[float]:
    return [round(float(value), 3) for value in (bounds.value, bounds.low, bounds.high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "planted": lambda: planted(options.count),
        "negation": negation,
        "foretold": lambda: foretold(options.count, options.photos, options.texts),
    }
    parser.add_argument("--only", nargs="+", choices=list(measures), default=list(measures))
    parser.add_argument("--count", type=int, default=60, help="examples of each kind")
    parser.add_argument("--photos", type=Path, metavar="DATA", help="holds photos/")
    parser.add_argument("--texts", type=Path, help="one text per line, before the first tab")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only:
        known[name] = measures[name]()
        print(name, known[name], flush=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
