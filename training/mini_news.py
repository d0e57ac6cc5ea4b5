"""mini-news: a stock BertForSequenceClassification that tells which of 20 newsgroups a post is from.

    python training/mini_news.py --data DIR --out DIR --minutes 9 --seed 0

DIR has 20newsgroups.tar.gz and imdb-train.jsonl.xz. Posts are read without headers, footers and quotes. The model first
guesses masked pieces of the training posts, in a vocabulary made from them, and of film reviews, then learns the posts'
groups, half as given and half as a ridge regression on words and pairs of words, fitted to the other training posts,
sees them. Training posts that are empty or share more than a third of their sentences with a test post are left out.
Nothing supervises the attention. Of a post that is longer than 512 pieces the first 512 are read.
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
from texts import Texts, imdb, newsgroups, sentences_of

PIECES = 7680
SIZES = {"hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 5, "intermediate_size": 640}
HELD_OUT = 400  # training posts for a look at the progress
KEEP = 40  # seconds for the evaluation


def mean_f1(found: Tensor, labels: Tensor, classes: int) -> float:
    """The harmonic mean of precision and recall, in per cent, averaged over the classes."""
    right = labels[found == labels].bincount(minlength=classes)
    both = found.bincount(minlength=classes) + labels.bincount(minlength=classes)
    return 100 * float((2 * right / both.clamp(min=1)).mean())


def evaluation(posts: Texts, ridge: Callable[[Shelf], Tensor], options: argparse.Namespace) -> dict[str, float]:
    """Of the saved folder, loaded back as a user would."""
    model = course.reloaded(BertForSequenceClassification, options)
    test = shelf(posts, AutoTokenizer.from_pretrained(options.out / "model"), options.device)
    found = predictions(model, test)
    return {
        "news_test_accuracy": accuracy(found, test.labels),
        "news_test_macro_f1": mean_f1(found, test.labels, model.config.num_labels),
        "news_test_accuracy_of_the_ridge": accuracy(ridge(test).argmax(dim=-1), test.labels),
        "news_test_majority": majority(test.labels),
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.set_defaults(hidden=0.2, rate=5e-4)
    options = course.begin(parser)
    names, given, test = newsgroups(options.data)
    kept = given.without(sentences_of(test))
    posts = {"kept": len(kept), "empty_or_also_in_the_test": len(given) - len(kept), "test": len(test)}
    course.say({"event": "posts read", **posts}, options.out)
    kept, held_out = kept.parted(HELD_OUT)
    films = imdb(options.data, "train")
    if options.limit:
        kept, held_out, test, films = (part.sample(options.limit) for part in (kept, held_out, test, films))
    tokenizer = new_tokenizer(kept.texts, PIECES)
    train, films = (shelf(part, tokenizer, options.device) for part in (kept, films))
    course.say({"event": "texts encoded", "pieces": len(train.pieces), "of_films": len(films.pieces)}, options.out)
    opinions, ridge = fitted_ridge(train, len(names))
    course.say({"event": "ridge fitted", "accuracy": accuracy(opinions.argmax(dim=-1), train.labels)}, options.out)
    lesson = Lesson(
        train=train,
        targets=(F.one_hot(train.labels, len(names)) + opinions) / 2,
        copies=torch.ones(len(train), dtype=torch.long),
        held_out=shelf(held_out, tokenizer, options.device),
    )
    model = new_model(names, tokenizer, **SIZES).to(options.device)
    model, steps = taught(model, [train.stream(), films.stream()], lesson, options, keep=KEEP)
    course.save(model, options.out / "model", [tokenizer])
    course.finish(evaluation(test, ridge, options), model, options, **steps)


if __name__ == "__main__":
    main()
