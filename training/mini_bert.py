"""mini-bert: a stock BertForSequenceClassification that tells whether a film review is negative or positive.

    python training/mini_bert.py --data DIR --out DIR --minutes 9 --seed 0

DIR has imdb-train.jsonl.xz, imdb-test.jsonl.xz and eraser_movies.tar.gz. The model is first pre-trained to predict
masked tokens of the training reviews, in a vocabulary made from them, then fine-tuned on their labels. Half of a target
is the label, half the prediction of a ridge regression on tokens and pairs of tokens that was fitted to the other
training reviews. Training reviews that share more than a third of their sentences with a test review are left out.
Nothing supervises the attention. Of a longer review the first 510 tokens are read, 512 with [CLS] and [SEP].
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, BertForSequenceClassification

from bert_training import (
    ClassificationData,
    accuracy,
    majority_accuracy,
    new_model,
    predict_labels,
    text_parser,
    train_classifier,
)
from checkpoints import load_model, save_model
from ridge_regression import fit_ridge
from texts import SENTIMENTS, Texts, eraser_movies, imdb, sentences_of
from token_batches import EncodedTexts, encode_texts, new_tokenizer
from training_loop import log, start_run, write_metrics

VOCABULARY = 8000
SIZES = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 576}
HELD_OUT = 1000  # IMDB training reviews for validation during training
ERASER_REPEATS = 3  # of an ERASER review in each epoch: it is long, and another part is read each time
RESERVE = 60  # seconds for the evaluation


def reviews(options: argparse.Namespace) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """The training parts, without reviews that overlap with a test part, and the test parts."""
    movies = eraser_movies(options.data)
    tests = {"imdb_test": imdb(options.data, "test"), "eraser_test": movies["test"], "eraser_val": movies["val"]}
    train = {"imdb": imdb(options.data, "train"), "eraser": movies["train"]}
    test_sentences = sentences_of(*tests.values())
    kept = {name: part.without_overlap(test_sentences) for name, part in train.items()}
    dropped = {f"{name}_also_in_a_test": len(part) - len(kept[name]) for name, part in train.items()}
    log({"event": "reviews read", **{name: len(part) for name, part in kept.items()}, **dropped}, options.out)
    return kept, tests


def evaluation(
    tests: dict[str, Texts], ridge: Callable[[EncodedTexts], Tensor], options: argparse.Namespace
) -> dict[str, float]:
    """Accuracies of the saved model, loaded as a user would load it, and of simpler baselines."""
    model = load_model(BertForSequenceClassification, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores, baselines = {}, {}
    for name, part in tests.items():
        test = encode_texts(part, tokenizer, options.device)
        scores[f"{name}_accuracy"] = accuracy(predict_labels(model, test), test.labels)
        baselines[f"{name}_accuracy_by_the_last_512"] = accuracy(
            predict_labels(model, test, from_the_end=True), test.labels
        )
        baselines[f"{name}_accuracy_of_the_ridge"] = accuracy(ridge(test).argmax(dim=-1), test.labels)
        baselines[f"{name}_majority"] = majority_accuracy(test.labels)
    return scores | baselines


def main() -> None:
    options = start_run(text_parser(__doc__))
    kept, tests = reviews(options)
    kept["imdb"], held_out = kept["imdb"].split(HELD_OUT)
    if options.limit:
        kept, tests = ({name: part.sample(options.limit) for name, part in parts.items()} for parts in (kept, tests))
        held_out = held_out.sample(options.limit)
    tokenizer = new_tokenizer(kept["imdb"].texts + kept["eraser"].texts, VOCABULARY)
    train = encode_texts(kept["imdb"] + kept["eraser"], tokenizer, options.device)
    log({"event": "reviews encoded", "pieces": len(train.tokens)}, options.out)
    probabilities, ridge = fit_ridge(train, len(SENTIMENTS))
    log({"event": "ridge fitted", "accuracy": accuracy(probabilities.argmax(dim=-1), train.labels)}, options.out)
    data = ClassificationData(
        train=train,
        targets=(F.one_hot(train.labels, len(SENTIMENTS)) + probabilities) / 2,
        repeats=torch.tensor([1] * len(kept["imdb"]) + [ERASER_REPEATS] * len(kept["eraser"])),
        validation=encode_texts(held_out, tokenizer, options.device),
    )
    model = new_model(SENTIMENTS, tokenizer, **SIZES).to(options.device)
    model, steps = train_classifier(model, [train.concatenated()], data, options, reserve=RESERVE)
    save_model(model, options.out / "model", [tokenizer])
    write_metrics(evaluation(tests, ridge, options), model, options, **steps)


if __name__ == "__main__":
    main()
