"""Small random models of every head, in folders as the hub has them, with tokenizers made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from conftest import labelled, saved
from tiny_models import DEBERTA, DISTIL, TEXT, built

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
WORDS = ["the", "film", "was", "great", "bad", "not", "a", "new", "york", "paris", "in", "when", "it", "came", "out"]
WORDS += ["1969", "1972", "this", "example", "is", "and", "great", "##ly", ".", ",", "?"]
TAGS = labelled({0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-DATE", 4: "I-DATE"})
INFERENCE = labelled({0: "contradiction", 1: "neutral", 2: "entailment"})
TOPICS = labelled({0: "sport", 1: "film", 2: "food"})
RESIDUES = ["L", "A", "G", "V", "S", "E", "R", "T", "I", "D", "P", "K", "Q", "N", "F", "Y", "M", "H", "W", "C"]

SIZES = {name: value for name, value in TEXT.items() if name != "num_labels"}
GPT = {"vocab_size": 300, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 64}
GPT |= {"pad_token_id": 299, "bos_token_id": 299, "eos_token_id": 299}
ESM = SIZES | {"vocab_size": 26, "mask_token_id": 4, "position_embedding_type": "rotary"}


VOCABULARY = {word: index for index, word in enumerate(dict.fromkeys([*SPECIAL, *WORDS]))}


def word_pieces() -> Any:
    return transformers.BertTokenizerFast(vocab=VOCABULARY)


def distilled_word_pieces() -> Any:
    """The same without an input that says which text a token is of."""
    return transformers.DistilBertTokenizerFast(vocab=VOCABULARY)


def unigrams() -> Any:
    """SentencePiece's kind: a word keeps its punctuation, and begins with a mark for the space before it."""
    pieces = [*SPECIAL, *(f"▁{word}" for word in WORDS if word.isalnum()), "ly", ".", ",", "?"]
    model = models.Unigram([(piece, -float(n + 1)) for n, piece in enumerate(dict.fromkeys(pieces))], unk_id=3)
    made = tokenizers.Tokenizer(model)
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return _fast(made)


def byte_pairs() -> Any:
    """GPT-2's kind: bytes and a few pairs of them, no class token, spaces inside tokens."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=298, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(["it came out in new york, not in paris."] * 4, trainer)
    names = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", model_max_length=64, model_input_names=names
    )


def residues(folder: Path) -> Any:
    """A protein's tokenizer, which says nothing of characters."""
    (folder / "vocab.txt").write_text("\n".join(["<pad>", "<cls>", "<eos>", "<unk>", "<mask>", *RESIDUES, "X"]))
    return transformers.EsmTokenizer(folder / "vocab.txt")


def _fast(made: tokenizers.Tokenizer) -> Any:
    named = {"pad": 0, "cls": 1, "sep": 2, "unk": 3, "mask": 4}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=40, **{f"{name}_token": SPECIAL[n] for name, n in named.items()}
    )


# By a name: the class, its configuration and sizes, and what makes its tokenizer.
HEADS: dict[str, tuple[str, str, dict[str, Any], Callable[[], Any]]] = {
    "bert tags": ("BertForTokenClassification", "BertConfig", SIZES | TAGS, word_pieces),
    "distilbert tags": ("DistilBertForTokenClassification", "DistilBertConfig", DISTIL | TAGS, distilled_word_pieces),
    "deberta tags": ("DebertaV2ForTokenClassification", "DebertaV2Config", SIZES | DEBERTA | TAGS, unigrams),
    "gpt2 tags": ("GPT2ForTokenClassification", "GPT2Config", GPT | TAGS, byte_pairs),
    "bert span": ("BertForQuestionAnswering", "BertConfig", SIZES, word_pieces),
    "distilbert span": ("DistilBertForQuestionAnswering", "DistilBertConfig", DISTIL, distilled_word_pieces),
    "deberta span": ("DebertaV2ForQuestionAnswering", "DebertaV2Config", SIZES | DEBERTA, unigrams),
    "bert masks": ("BertForMaskedLM", "BertConfig", SIZES, word_pieces),
    "distilbert masks": ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL, distilled_word_pieces),
    "bert choice": ("BertForMultipleChoice", "BertConfig", SIZES, word_pieces),
    "deberta choice": ("DebertaV2ForMultipleChoice", "DebertaV2Config", SIZES | DEBERTA, unigrams),
    "bert next": ("BertForNextSentencePrediction", "BertConfig", SIZES, word_pieces),
    "bert inference": ("BertForSequenceClassification", "BertConfig", SIZES | INFERENCE, word_pieces),
    "deberta inference": (
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        SIZES | DEBERTA | INFERENCE,
        unigrams,
    ),
    "bert value": ("BertForSequenceClassification", "BertConfig", SIZES | {"num_labels": 1}, word_pieces),
    "bert topics": (
        "BertForSequenceClassification",
        "BertConfig",
        SIZES | TOPICS | {"problem_type": "multi_label_classification"},
        word_pieces,
    ),
    "bert embedding": ("BertModel", "BertConfig", SIZES, word_pieces),
    "distilbert embedding": ("DistilBertModel", "DistilBertConfig", DISTIL, distilled_word_pieces),
}


def saved_head(name: str, folder: Path) -> Path:
    """The folder of a model of this head."""
    if name.startswith("esm"):
        folder.mkdir()
        head = {"esm masks": "EsmForMaskedLM", "esm tags": "EsmForTokenClassification"}[name]
        labels = labelled({0: "H", 1: "E", 2: "C"}) if name == "esm tags" else {}
        return saved(folder, built(head, "EsmConfig", **ESM | labels), residues(folder))
    model, config, sizes, tokenizer = HEADS[name]
    return saved(folder, built(model, config, **sizes), tokenizer())
