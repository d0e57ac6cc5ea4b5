"""Examples as people give them, encoded as a model takes them: a picture, a sound, a text, or two of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk, chunks_of, length_limit, spell
from whyformer.inputs.hearing import Hearing, hearing_of
from whyformer.inputs.layouts import Box, WordPieces, covered_box
from whyformer.inputs.pictured import PicturedPrompt, has_picture, pictured_prompt
from whyformer.inputs.read import Regions, image_of, prompt_of, regions_of, text_of, two_of
from whyformer.inputs.sound import Sound, is_sound
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of, dtype_of

LEAST_TEXT = 8  # tokens of a text, with its special ones, that there must be room for


@dataclass(frozen=True)
class Picture:
    """A picture, and the part of it the model sees."""

    image: Image.Image
    box: Box


@dataclass(frozen=True)
class EncodedExample:
    """As much of an example as the model takes at once: what it sees, hears or reads, what it has written so far."""

    example: int
    picture: Picture | None = None
    regions: Regions | None = None
    chunk: Chunk | None = None
    written: Chunk | None = None
    pictured: PicturedPrompt | None = None
    hearing: Hearing | None = None
    prompt: tuple[float, ...] | None = None  # a point or a box of the picture


def encode(
    loaded_model: LoadedModel, examples: Iterable[Any], *, truncate: bool = False, room: int = 0
) -> list[EncodedExample]:
    """Each example as the model takes it, or in several parts where a text is longer than a classifier takes.

    `room` is for how many tokens a model that goes on from its text is to leave room after it.
    """
    check_processor(loaded_model)
    return [
        one
        for number, example in enumerate(examples)
        for one in _encode_one(number, example, loaded_model, truncate=truncate, room=room)
    ]


def check_processor(loaded_model: LoadedModel) -> None:
    """Refuse a model that nothing makes inputs for."""
    if loaded_model.processor is None:
        raise WhyformerError(
            f"{loaded_model.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )


def _encode_one(
    number: int, example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int
) -> Iterator[EncodedExample]:
    if loaded_model.task.hears:
        yield _encode_sound(number, example, loaded_model, truncate=truncate)
    elif loaded_model.task.sees_regions:
        regions, text = two_of(example, "regions and a text: (whyformer.Regions(…), 'what colour is the circle?')")
        yield EncodedExample(
            number, regions=regions_of(regions), chunk=whole_text(text, loaded_model, truncate=truncate)
        )
    elif loaded_model.task.sees_pictures_in_text:
        yield pictured_example(number, pictured_prompt(loaded_model, example))
    elif loaded_model.task.cuts_out:
        picture, prompt = two_of(example, "a picture and a point or a box of it: ('street.jpg', (0.4, 0.6))")
        yield EncodedExample(number, picture_of(picture, loaded_model), prompt=prompt_of(prompt))
    elif has_picture(example) and not loaded_model.task.sees_pictures:
        raise WhyformerError(f"{loaded_model.name} sees no pictures: give it a text.")
    elif loaded_model.task.sees_pictures and loaded_model.tokenizer is not None:
        picture, text = two_of(example, "a picture and a text: ('street.jpg', 'a red bus')")
        chunk = whole_text(text, loaded_model, truncate=truncate)
        written = written_of([], loaded_model) if loaded_model.task.has_decoder else None
        yield EncodedExample(number, picture_of(picture, loaded_model), chunk=chunk, written=written)
    elif loaded_model.task.sees_pictures:
        yield EncodedExample(number, picture_of(example, loaded_model))
    elif loaded_model.task.has_decoder:
        source, so_far = two_of(example, "a text, and what was written so far") if _is_pair(example) else (example, "")
        chunk = whole_text(source, loaded_model, truncate=truncate)
        yield EncodedExample(number, chunk=chunk, written=written_of(_ids(so_far, loaded_model), loaded_model))
    elif loaded_model.task.writes:
        yield EncodedExample(number, chunk=whole_text(example, loaded_model, truncate=truncate, room=room))
    else:
        if loaded_model.task.answer == "next sentence":
            two_of(example, "two texts, of which the second may follow the first: ('It rained.', 'We got wet.')")
        limit = length_limit(loaded_model.model, loaded_model.tokenizer)
        for chunk in chunks_of(text_of(example), loaded_model.tokenizer, limit, truncate=truncate):
            yield EncodedExample(number, chunk=chunk)


def pictured_example(number: int, pictured: PicturedPrompt) -> EncodedExample:
    """A prompt with pictures as an example; its words are what is scored of its tokens."""
    tokens = pictured.prompt.tokens
    positions = tuple(place for place, token in enumerate(tokens) if not token.is_special)
    words = [tokens[place] for place in positions]
    layout = WordPieces(
        (pictured.prompt.text,),
        tuple(token.text for token in words),
        (0,) * len(words),
        tuple((token.start, token.end) for token in words),
    )
    encoding = {"input_ids": pictured.prompt.ids, "attention_mask": [1] * len(tokens)} | pictured.by_token
    chunk = Chunk(encoding, positions, tuple((0, place) for place in range(len(words))), layout)
    return EncodedExample(number, chunk=chunk, pictured=pictured)


def _encode_sound(number: int, example: Any, loaded_model: LoadedModel, *, truncate: bool) -> EncodedExample:
    sound, so_far = (example, "") if is_sound(example) else example
    hearing = hearing_of(sound, loaded_model, truncate=truncate)
    if not loaded_model.task.writes:
        if so_far:
            raise WhyformerError(f"{loaded_model.name} hears and does not read: leave the text {so_far!r:.40} out.")
        return EncodedExample(number, hearing=hearing)
    written = written_of(_ids(so_far, loaded_model), loaded_model, transcript_beginning(loaded_model, hearing.sound))
    return EncodedExample(number, written=written, hearing=hearing)


def transcript_beginning(loaded_model: LoadedModel, sound: Sound) -> list[int]:
    """The tokens a transcript begins with: its start and, for Whisper, the language heard, the task, no timestamps."""
    model, extractor = cast(Any, loaded_model.model), loaded_model.feature_extractor
    settings, beginning = model.generation_config, decoder_beginning(loaded_model)
    if getattr(settings, "lang_to_id", None):
        language = getattr(settings, "language", None)
        if language is None:
            features = extractor(sound.samples, sampling_rate=sound.rate, return_tensors="pt")["input_features"]
            language = int(model.detect_language(features.to(device_of(model), dtype_of(model)))[0])
        else:
            language = settings.lang_to_id[language if language in settings.lang_to_id else f"<|{language}|>"]
        task = settings.task_to_id[getattr(settings, "task", None) or "transcribe"]
        beginning = [*beginning, language, task]
    silent = getattr(settings, "no_timestamps_token_id", None)
    return beginning if silent is None else [*beginning, silent]


def picture_of(example: Any, loaded_model: LoadedModel) -> Picture:
    """A picture as the model is shown it."""
    image = image_of(example)
    return Picture(image, covered_box(loaded_model.image_processor, image.size))


def whole_text(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int = 0) -> Chunk:
    """A text that must fit: what is asked, compared or continued cannot be read in parts."""
    limit = length_limit(loaded_model.model, loaded_model.tokenizer)
    left = None if limit is None else limit - room
    if room and left is not None and left < LEAST_TEXT:
        raise WhyformerError(
            f"tokens={room + 1}: {loaded_model.name} takes {limit} with the text before them. Ask for fewer."
        )
    chunks = chunks_of(text_of(example), loaded_model.tokenizer, left, truncate=truncate)
    if len(chunks) > 1:
        others = f", {room} of them for what it is to write" if room else ""
        way_out = "shorten it, or ask for fewer" if room else "shorten it"
        raise WhyformerError(
            f"The text is too long for the {limit} tokens that {loaded_model.name} takes{others}: {way_out}."
        )
    return chunks[0]


def written_of(ids: list[int], loaded_model: LoadedModel, beginning: Sequence[int] | None = None) -> Chunk:
    """What a decoder has written so far, after the tokens that it starts from."""
    begun = list(decoder_beginning(loaded_model) if beginning is None else beginning)
    text, tokens, offsets = spell(ids, loaded_model.tokenizer)
    layout = WordPieces((text,), tokens, (0,) * len(ids), offsets)
    whole = [*begun, *ids]
    positions = tuple(range(len(begun), len(whole)))
    encoding: dict[str, list[int]] = {"input_ids": whole, "attention_mask": [1] * len(whole)}
    return Chunk(encoding, positions, tuple((0, n) for n in range(len(ids))), layout)


def decoder_beginning(loaded_model: LoadedModel) -> list[int]:
    """The tokens that a decoder starts from and does not choose: its start and, for some, a language."""
    model = loaded_model.model
    settings = [getattr(model, "generation_config", None), model.config, model]
    start, forced = (
        next((value for part in settings if (value := getattr(part, name, None)) is not None), None)
        for name in ("decoder_start_token_id", "forced_bos_token_id")
    )
    if start is None:
        raise WhyformerError(
            f"{loaded_model.name} does not say what its decoder starts from: set decoder_start_token_id."
        )
    return [start] if forced is None else [start, forced]


def _ids(text: str, loaded_model: LoadedModel) -> list[int]:
    return list(loaded_model.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _is_pair(example: Any) -> bool:
    return isinstance(example, (tuple, list))
