"""A loaded model's inputs and outputs, decided once from the model and its processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from whyformer.models.answering import forward_arguments, hides_logits
from whyformer.models.families import FAMILIES
from whyformer.models.input_tensors import REGION_INPUTS
from whyformer.models.structure import can_write, config_of, unwrapped

Answer = Literal[
    "label",
    "labels",
    "value",
    "detection",
    "labels of pixels",
    "mask",
    "character",
    "similarity",
    "next token",
    "tag",
    "span",
    "masked word",
    "choice",
    "next sentence",
    "embedding",
]


@dataclass(frozen=True)
class Head:
    """A kind of answer: its description, its targets, and the suffixes of transformers classes that have it."""

    description: str
    targets: str
    classes: tuple[str, ...] = ()


_LABEL = "a label's name or index, contrast(label, other)"

HEADS: dict[Answer, Head] = {
    "label": Head(
        "a label",
        _LABEL,
        (
            *("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher"),
            *("ForAudioClassification", "ForVideoClassification", "ForImageTextRetrieval", "ForImageAndTextRetrieval"),
        ),
    ),
    "labels": Head("labels, each judged separately", f"{_LABEL}; explain_targets takes all that are likely"),
    "value": Head("a number", "an output's name or index, if there are several"),
    "detection": Head(
        "a label of a detected object",
        "a label's name or index, detection(query, label), contrast(label, other)",
        ("ForObjectDetection",),
    ),
    "labels of pixels": Head(
        "a label for each pixel",
        "a label's name or index, Pixel(x, y, label), Region(label, box), of queries detection(query, label)",
        ("ForSemanticSegmentation", "ForUniversalSegmentation", "ForInstanceSegmentation"),
    ),
    "mask": Head(
        "a mask for a point or a box of a picture",
        "Pixel(x, y), Region(box=…), or none for all of it",
        ("SamModel", "SamHQModel"),
    ),
    "character": Head(
        "a character at each moment of a sound",
        "moment(seconds, character), a character where it is likeliest, contrast(character, other)",
        ("ForCTC",),
    ),
    "similarity": Head(
        "how alike a picture and a text are", "one of the texts or its index", ("CLIPModel", "SiglipModel")
    ),
    "next token": Head(
        "the next token of a text",
        "a word or a token's id, contrast(word, other)",
        ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"),
    ),
    "tag": Head(
        "a tag for each word",
        "at(word, tag), at(word), or a tag where it is likeliest; explain_targets takes every entity",
        ("ForTokenClassification",),
    ),
    "span": Head(
        "a span of the passage, for a question",
        "words of the passage, contrast(words, other words)",
        ("ForQuestionAnswering", "ForQuestionAnsweringSimple"),
    ),
    "masked word": Head(
        "the word at each mask",
        "a word or a token's id, at(mask, word) where there are several masks, contrast(word, other)",
        ("ForMaskedLM",),
    ),
    "choice": Head("one of the choices after a prompt", "one of the choices or its index", ("ForMultipleChoice",)),
    "next sentence": Head("whether a text follows another", _LABEL, ("ForNextSentencePrediction",)),
    "embedding": Head("how alike two texts are", "none: it is the cosine of their embeddings", ("Model",)),
}
# These answers are read at a position that is an ordinary word, and scored as one.
_READ_AT_WORDS: tuple[Answer, ...] = ("next token", "tag", "span")
_OF_PICTURES: tuple[Answer, ...] = ("detection", "labels of pixels")
_LABELLED: tuple[Answer, ...] = ("label", "labels", "value", *_OF_PICTURES, "tag", "next sentence")


@dataclass(frozen=True)
class Task:
    """A model's kinds of input and output.

    Attributes:
        sees: "picture", or "regions" of a picture that a detector has found, or None.
        reads_text: Whether it takes a text.
        answer: Its kind of output, a key of `HEADS`.
        has_decoder: Whether it is an encoder-decoder.
        sees_pictures_in_text: Whether it is a decoder with images in its prompt.
        hears: Whether it takes a sound.
        modality: The modality of its examples, a module of `whyformer.modalities`.
    """

    sees: Literal["picture", "regions"] | None
    reads_text: bool
    answer: Answer
    has_decoder: bool = False
    sees_pictures_in_text: bool = False
    hears: bool = False
    modality: str = "text"

    @property
    def is_text_only(self) -> bool:
        """Whether it takes texts alone."""
        return self.sees is None and self.modality == "text"

    @property
    def reads_other_files(self) -> bool:
        """Whether it takes files that have neither texts nor pictures."""
        return self.sees is None and self.modality != "text"

    @property
    def sees_pictures(self) -> bool:
        return self.sees == "picture"

    @property
    def sees_regions(self) -> bool:
        return self.sees == "regions"

    @property
    def writes(self) -> bool:
        """Whether it predicts the next token of a text."""
        return self.answer == "next token"

    @property
    def compares(self) -> bool:
        """Whether it compares a picture with a text."""
        return self.answer == "similarity"

    @property
    def detects(self) -> bool:
        return self.answer == "detection"

    @property
    def cuts_out(self) -> bool:
        """Whether it segments a picture by a point or a box."""
        return self.answer == "mask"

    @property
    def spells(self) -> bool:
        """Whether it transcribes a sound frame by frame (CTC)."""
        return self.answer == "character"

    @property
    def chooses_words(self) -> bool:
        """Whether it predicts a token of its vocabulary."""
        return self.answer in ("next token", "masked word")

    @property
    def is_read_at_words(self) -> bool:
        """Whether its answer is read at a position that is an ordinary word."""
        return self.answer in _READ_AT_WORDS

    @property
    def has_labels(self) -> bool:
        """Whether it predicts one of the labels, or tags, of its configuration."""
        return self.answer in _LABELLED

    @property
    def description(self) -> str:
        """Description of the output."""
        return HEADS[self.answer].description

    @property
    def targets(self) -> str:
        """Description of the targets."""
        return HEADS[self.answer].targets


def task_of(model: nn.Module, *, image_processor: Any, tokenizer: Any, feature_extractor: Any = None) -> Task:
    """Derive the task of a model from its class and processors, each of which may be None."""
    takes = forward_arguments(model)
    sees: Literal["picture", "regions"] | None = "picture" if image_processor is not None else None
    if takes & set(REGION_INPUTS):
        sees = "regions"
    writes = can_write(model)
    answer: Answer = "next token" if writes else _answer(model, sees)
    is_apart = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    has_decoder = writes and (is_apart or hides_logits(model))
    row = FAMILIES.get(getattr(getattr(model, "config", None), "model_type", ""))
    in_text = writes and sees == "picture" and row is not None and row.sight is not None
    hears = feature_extractor is not None
    modality = _modality(sees, hears=hears, in_text=in_text) if row is None or row.modality is None else row.modality
    return Task(sees, tokenizer is not None and not hears, answer, has_decoder, in_text, hears, modality)


def _modality(sees: str | None, *, hears: bool, in_text: bool) -> str:
    """The modality of an example, unless a family row names it."""
    if hears or sees == "regions":
        return "audio" if hears else "regions"
    return "image_text" if in_text else "image" if sees == "picture" else "text"


def answer_of_class(name: str) -> Answer | None:
    """Kind of output of a transformers class, by its suffix; None if unknown."""
    return next((answer for answer in get_args(Answer) if name.endswith(HEADS[answer].classes or ("\0",))), None)


def _answer(model: nn.Module, sees: str | None) -> Answer:
    """Kind of output of a model that does not generate text; by default a label."""
    is_from_transformers = hasattr(model, "base_model_prefix")
    answer = answer_of_class(type(unwrapped(model)).__name__) if is_from_transformers else "label"
    if sees == "picture" and hasattr(model, "logit_scale"):
        return "similarity"
    if answer is None or (
        sees is not None and answer not in (*_OF_PICTURES, "mask")
    ):  # a question about a picture has labels
        answer = "label"
    config = config_of(model)
    if answer != "label" or config is None:
        return answer
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or getattr(config, "num_labels", None) == 1:
        return "value"
    return "labels" if problem == "multi_label_classification" else "label"
