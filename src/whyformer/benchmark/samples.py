"""Convert examples of data sets to inputs of a model, with the ground truth of protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from whyformer.axes import WordTruth
from whyformer.data.examples import BACKGROUND, OBJECT, Document, Instances, Photo, VisualQuestion
from whyformer.data.generated import Scene
from whyformer.data.next_words import WrittenWord
from whyformer.data.stories import AnsweredPassage
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.facts import Example as Story
from whyformer.inputs.chat_template import render_chat
from whyformer.models.loading import LoadedModel


@dataclass(frozen=True, eq=False)
class Thing:
    """An object for a detector to find: its label or category, and its mask as COCO run lengths.

    Its area is in pixels; COCO's own is that of the outline, which may differ from the mask's.
    """

    label: str | int
    run_lengths: dict[str, Any]
    area: float
    is_crowd: bool = False


@dataclass(frozen=True)
class SampleSourceTruth:
    """A question about a document, the right response, and the sources it depends on.

    The sources are places in the text; `causes` are sets of their indices, each sufficient for the response.
    """

    prompt: str
    response: str
    sources: tuple[tuple[int, int], ...]
    causes: tuple[tuple[int, ...], ...]
    hops: int


@dataclass(frozen=True, eq=False)
class Sample:
    """An example as in `explain`, the right answer, and the ground truth if known.

    A dual encoder has `choices` of texts, one of which is the label. The truth is a mask of the picture's pixels, marks
    of its regions, and marks of the words of the text or of the `prompt` in it. For a response it is the sources in its
    prompt. `kind` is the kind of question, if a data set has several.
    """

    name: str
    example: Any
    label: str | None = None
    choices: tuple[str, ...] = ()
    mask: np.ndarray | None = None
    regions: np.ndarray | None = None
    words: WordTruth | None = None
    answers: tuple[str, ...] = ()
    things: tuple[Thing, ...] = ()
    response: SampleSourceTruth | None = None
    prompt: str | None = None
    kind: str | None = None

    @property
    def picture(self) -> Image.Image | None:
        visual = self.example[0] if isinstance(self.example, tuple) else self.example
        visual = getattr(visual, "image", visual)
        return visual if isinstance(visual, Image.Image) else None


def make_sample(example: Any, loaded_model: LoadedModel, labels: Mapping[str, str]) -> Sample:
    """Convert a reader's example for this model; `labels` are the model's names for the data's labels."""
    match example:
        case Photo(name=name, image=image, label=label, mask=mask):
            if not loaded_model.task.compares:
                return Sample(name, image, None if label is None else labels.get(label, label), mask=mask)
            if label is None or label not in labels:
                raise WhyformerError(f"{name!r}: no text for its label {label!r}. Write one under [labels].")
            place = list(labels).index(label)  # two labels may have the same text, as ImageNet's two cranes
            return Sample(name, (image, labels[label]), str(place), tuple(labels.values()), mask)
        case Document(name=name, text=text, label=label, rationale=rationale):
            return Sample(name, text, None if label is None else labels.get(label, label), words=rationale)
        case Instances(name=name, image=image, annotations=annotations):
            things = tuple(_thing(annotation, image.size) for annotation in annotations)
            return Sample(name, image, things=things)
        case VisualQuestion(name=name, question=question, answers=answers, regions=regions):
            if regions is None:
                raise WhyformerError(f"Question {name}: name the folder of the pictures' regions, `regions`.")
            return Sample(name, (regions, question), answers=answers)
        case Scene():
            return _scene_sample(example, loaded_model)
        case Story():
            return _story_sample(example)
        case AnsweredPassage():
            return _passage_sample(example)
        case WrittenWord():
            return _word_sample(example, loaded_model)
        case unknown:
            raise WhyformerError(f"{loaded_model.name} cannot be measured on {type(unknown).__name__} examples.")


def _scene_sample(scene: Scene, loaded_model: LoadedModel) -> Sample:
    if loaded_model.task.compares:
        caption = scene.caption
        mask = np.where(scene.pixels(caption.things), OBJECT, BACKGROUND).astype(np.uint8)
        choices = (caption.text, *scene.others)
        return Sample(scene.name, (scene.image, caption.text), caption.text, choices, mask, words=caption.words)
    if loaded_model.task.sees_regions:
        question = scene.question
        return Sample(
            scene.name,
            (scene.regions, question.text),
            scene.answer,
            regions=question.things,
            words=question.words,
            answers=(scene.answer,) * 10,
        )
    if loaded_model.task.detects:
        kinds = [(number, label) for number, label in enumerate(scene.labels) if label]
        masks = [(label, scene.owner == number) for number, label in kinds]
        things = tuple(Thing(label, _run_lengths(mask), float(mask.sum())) for label, mask in masks if mask.any())
        label, first = next((label, mask) for label, mask in masks if mask.any())
        mask = np.where(first, OBJECT, BACKGROUND).astype(np.uint8)
        return Sample(scene.name, scene.image, label, mask=mask, things=things)
    raise WhyformerError(f"Scenes are for detectors, dual encoders and models of regions, not for {loaded_model.name}.")


def _story_sample(story: Story) -> Sample:
    question = story.questions[0]
    sources = tuple((sentence.start, sentence.end) for sentence in story.sentences)
    truth = SampleSourceTruth(story.prompt, question.answer, sources, question.causes, question.hops)
    return Sample(question.text, story.prompt, answers=(question.answer,), response=truth)


def _passage_sample(answered: AnsweredPassage) -> Sample:
    passage, question = answered.passage, answered.passage.question
    sources = tuple((sentence.start, sentence.end) for sentence in passage.sentences)
    truth = SampleSourceTruth(passage.prompt, answered.answer, sources, question.causes, question.hops)
    return Sample(answered.name, passage.prompt, answers=(answered.answer,), response=truth)


def _word_sample(word: WrittenWord, loaded_model: LoadedModel) -> Sample:
    """The prompt in the model's chat template with the reply so far; the label is the first token of the next word."""
    task, processor = loaded_model.task, loaded_model.processor
    if not (task.sees_pictures and task.writes and getattr(processor, "chat_template", None)):
        raise WhyformerError(
            f"Written words are for chat models that read pictures, and {loaded_model.name} is not one."
        )
    content = [{"type": "image"}, {"type": "text", "text": word.prompt}]
    prompt = render_chat(processor, [{"role": "user", "content": content}])
    text = prompt + word.written
    before, after = (
        loaded_model.tokenizer(part, add_special_tokens=False)["input_ids"]
        for part in (text, f"{text}{' ' * bool(word.written)}{word.word}")
    )
    if after[: len(before)] != before:
        raise WhyformerError(f"{word.name}: the tokenizer merges {word.word!r} with the text before it.")
    label = loaded_model.tokenizer.convert_ids_to_tokens(after[len(before)])
    return Sample(
        word.name,
        (word.image, text),
        label,
        mask=word.mask,
        words=word.truth,
        prompt=word.prompt,
        kind=word.kind,
    )


def _thing(annotation: Mapping[str, Any], size: tuple[int, int]) -> Thing:
    rle = extra("pycocotools.mask")
    outline, (width, height) = annotation["segmentation"], size
    if isinstance(outline, list):
        lengths = rle.merge(rle.frPyObjects(outline, height, width))
    else:
        lengths = rle.frPyObjects(outline, height, width) if isinstance(outline["counts"], list) else outline
    area = float(annotation.get("area") or rle.area(lengths))
    return Thing(annotation["category_id"], _plain(lengths), area, bool(annotation.get("iscrowd")))


def _run_lengths(mask: np.ndarray) -> dict[str, Any]:
    return _plain(extra("pycocotools.mask").encode(np.asfortranarray(mask.astype(np.uint8))))


def _plain(lengths: Mapping[str, Any]) -> dict[str, Any]:
    """Run lengths in a form that JSON can store."""
    counts = lengths["counts"]
    return {"size": list(lengths["size"]), "counts": counts.decode() if isinstance(counts, bytes) else counts}
