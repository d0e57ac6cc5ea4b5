"""mini-news: a stock BertForSequenceClassification that tells which of 20 newsgroups a post is from.

    python training/mini_news.py --data DIR --out DIR --minutes 9 --seed 0

DIR has 20newsgroups.tar.gz and imdb-train.jsonl.xz. Posts are read without headers, footers and quotes. The model is
first pre-trained to predict masked tokens of the training posts, in a vocabulary made from them, and of film reviews,
then fine-tuned on the posts' groups. Half of a target is the group, half the prediction of a ridge regression on tokens
and pairs of tokens that was fitted to the other training posts. Training posts that are empty or share more than a
third of their sentences with a test post are left out. Nothing supervises the attention. Of a longer post the first 510
tokens are read, 512 with [CLS] and [SEP].
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
from texts import Texts, imdb, newsgroups, sentences_of
from token_batches import EncodedTexts, encode_texts, new_tokenizer
from training_loop import log, start_run, write_metrics

VOCABULARY = 7680
SIZES = {"hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 5, "intermediate_size": 640}
HELD_OUT = 400  # training posts for validation during training
RESERVE = 40  # seconds for the evaluation


def macro_f1(predictions: Tensor, labels: Tensor, classes: int) -> float:
    """The harmonic mean of precision and recall, in percent, averaged over the classes."""
    correct = labels[predictions == labels].bincount(minlength=classes)
    both = predictions.bincount(minlength=classes) + labels.bincount(minlength=classes)
    return 100 * float((2 * correct / both.clamp(min=1)).mean())


def evaluation(posts: Texts, ridge: Callable[[EncodedTexts], Tensor], options: argparse.Namespace) -> dict[str, float]:
    """Scores of the saved model, loaded as a user would load it, and of simpler baselines."""
    model = load_model(BertForSequenceClassification, options)
    test = encode_texts(posts, AutoTokenizer.from_pretrained(options.out / "model"), options.device)
    predictions = predict_labels(model, test)
    return {
        "news_test_accuracy": accuracy(predictions, test.labels),
        "news_test_macro_f1": macro_f1(predictions, test.labels, model.config.num_labels),
        "news_test_accuracy_of_the_ridge": accuracy(ridge(test).argmax(dim=-1), test.labels),
        "news_test_majority": majority_accuracy(test.labels),
    }


def main() -> None:
    parser = text_parser(__doc__)
    parser.set_defaults(hidden=0.2, rate=5e-4)
    options = start_run(parser)
    names, train_posts, test = newsgroups(options.data)
    kept = train_posts.without_overlap(sentences_of(test))
    posts = {"kept": len(kept), "empty_or_also_in_the_test": len(train_posts) - len(kept), "test": len(test)}
    log({"event": "posts read", **posts}, options.out)
    kept, held_out = kept.split(HELD_OUT)
    films = imdb(options.data, "train")
    if options.limit:
        kept, held_out, test, films = (part.sample(options.limit) for part in (kept, held_out, test, films))
    tokenizer = new_tokenizer(kept.texts, VOCABULARY)
    train, films = (encode_texts(part, tokenizer, options.device) for part in (kept, films))
    log({"event": "texts encoded", "pieces": len(train.tokens), "of_films": len(films.tokens)}, options.out)
    probabilities, ridge = fit_ridge(train, len(names))
    log({"event": "ridge fitted", "accuracy": accuracy(probabilities.argmax(dim=-1), train.labels)}, options.out)
    data = ClassificationData(
        train=train,
        targets=(F.one_hot(train.labels, len(names)) + probabilities) / 2,
        repeats=torch.ones(len(train), dtype=torch.long),
        validation=encode_texts(held_out, tokenizer, options.device),
    )
    model = new_model(names, tokenizer, **SIZES).to(options.device)
    model, steps = train_classifier(model, [train.concatenated(), films.concatenated()], data, options, reserve=RESERVE)
    save_model(model, options.out / "model", [tokenizer])
    write_metrics(evaluation(test, ridge, options), model, options, **steps)


if __name__ == "__main__":
    main()
