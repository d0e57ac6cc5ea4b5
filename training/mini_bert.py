"""mini-bert: a stock BertForSequenceClassification that tells whether a film review is negative or positive.

    python training/mini_bert.py --data DIR --out DIR --minutes 9 --seed 0

DIR has imdb-train.jsonl.xz, imdb-test.jsonl.xz and eraser_movies.tar.gz. The model first guesses masked pieces of the
training reviews, in a vocabulary made from them, then learns their labels, half as given and half as a ridge regression
on words and pairs of words, fitted to the other training reviews, sees them. Training reviews that share more than a
third of their sentences with a test review are left out. Nothing supervises the attention. Of a review that is longer
than 512 pieces the first 512 are read.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, BertForSequenceClassification

import course
from masked_words import (
    Lesson,
    Shelf,
    accuracy,
    majority,
    new_model,
    new_tokenizer,
    options_of,
    predictions,
    shelf,
    taught,
)
from ridge import fitted_ridge
from texts import FEELINGS, Texts, eraser_movies, imdb, sentences_of

PIECES = 8000
SIZES = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 576}
HELD_OUT = 1000  # IMDB training reviews for a look at the progress
COPIES = 3  # of an ERASER review in each round: it is long, and another part is read each time
KEEP = 60  # seconds for the evaluation


def reviews(options: argparse.Namespace) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """The parts to learn from, free of what the test parts have, and the test parts."""
    movies = eraser_movies(options.data)
    tests = {"imdb_test": imdb(options.data, "test"), "eraser_test": movies["test"], "eraser_val": movies["val"]}
    given = {"imdb": imdb(options.data, "train"), "eraser": movies["train"]}
    known = sentences_of(*tests.values())
    kept = {name: part.without(known) for name, part in given.items()}
    dropped = {f"{name}_also_in_a_test": len(part) - len(kept[name]) for name, part in given.items()}
    course.say({"event": "reviews read", **{name: len(part) for name, part in kept.items()}, **dropped}, options.out)
    return kept, tests


def evaluation(
    tests: dict[str, Texts], ridge: Callable[[Shelf], Tensor], options: argparse.Namespace
) -> dict[str, float]:
    """Of the saved folder, loaded back as a user would."""
    model = course.reloaded(BertForSequenceClassification, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores, baselines = {}, {}
    for name, part in tests.items():
        test = shelf(part, tokenizer, options.device)
        scores[f"{name}_accuracy"] = accuracy(predictions(model, test), test.labels)
        baselines[f"{name}_accuracy_by_the_last_512"] = accuracy(predictions(model, test, last=True), test.labels)
        baselines[f"{name}_accuracy_of_the_ridge"] = accuracy(ridge(test).argmax(dim=-1), test.labels)
        baselines[f"{name}_majority"] = majority(test.labels)
    return scores | baselines


def main() -> None:
    options = course.begin(options_of(__doc__))
    kept, tests = reviews(options)
    kept["imdb"], held_out = kept["imdb"].parted(HELD_OUT)
    if options.limit:
        kept, tests = ({name: part.sample(options.limit) for name, part in parts.items()} for parts in (kept, tests))
        held_out = held_out.sample(options.limit)
    tokenizer = new_tokenizer(kept["imdb"].texts + kept["eraser"].texts, PIECES)
    train = shelf(kept["imdb"] + kept["eraser"], tokenizer, options.device)
    course.say({"event": "reviews encoded", "pieces": len(train.pieces)}, options.out)
    opinions, ridge = fitted_ridge(train, len(FEELINGS))
    course.say({"event": "ridge fitted", "accuracy": accuracy(opinions.argmax(dim=-1), train.labels)}, options.out)
    lesson = Lesson(
        train=train,
        targets=(F.one_hot(train.labels, len(FEELINGS)) + opinions) / 2,
        copies=torch.tensor([1] * len(kept["imdb"]) + [COPIES] * len(kept["eraser"])),
        held_out=shelf(held_out, tokenizer, options.device),
    )
    model = new_model(FEELINGS, tokenizer, **SIZES).to(options.device)
    model, steps = taught(model, [train.stream()], lesson, options, keep=KEEP)
    course.save(model, options.out / "model", [tokenizer])
    course.finish(evaluation(tests, ridge, options), model, options, **steps)


if __name__ == "__main__":
    main()
