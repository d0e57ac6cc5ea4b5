"""Let a model write, and explain each token by the text before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from whyformer.api.assemble import ExplainedAnswer, explanation_of
from whyformer.api.attribute import MethodChoice, default_for, first_that_applies
from whyformer.api.description import description
from whyformer.api.exchange_scores import ScoringEngine
from whyformer.api.generation import check_written, generate, transcribe
from whyformer.api.picture_prior import check_has_prior, token_priors
from whyformer.api.row_scores import ExchangeRowScores
from whyformer.backward.rules import Backward
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk, Vocabulary, decode_tokens
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.teacher_forcing import Exchange, ResponseRow
from whyformer.modalities.written import written_of
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.models.structure import config_of
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.targets.span_scores import TokenStatistics, logit_sum


def continuation(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-gpt",
    method: str | None = None,
    *,
    tokens: int = 8,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    prior: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> Continuation:
    """Let a model continue a text, and explain each token it writes.

    Each token is the most likely one that the model's generation settings allow: decoder start, forced, suppressed
    and end tokens are respected.

    Args:
        example: A text. A model with an encoder also takes (text, output so far). One that reads pictures takes
            (picture, text), ([pictures], text) or chat messages. One that reads sounds takes a sound, or (sound, output
            so far).
        model: The name of a bundled model, a folder, a Hugging Face id, a LoadedModel, or your own module.
        method: The name of a method, as in `explain`.
        tokens: The maximum number of tokens to write.
        processor: The tokenizer of your own module, if its folder has none.
        readout: The read-out, as in `explain`.
        truncate: Whether to cut a text that is longer than the model's limit and continue its beginning.
        prior: For a model that reads pictures and words in one prompt, whether to compute how likely each token would
            be after a blank picture: `Continuation.priors`. It takes one more forward pass.
        batch_size: The number of tokens that are explained at once.
        progress: Whether to show a progress bar.
        backward: "gradient", or "libra" for LibraGrad's rules.
        **options: The options of the method.

    Returns:
        A Continuation: the text, and an Explanation of each of its tokens.

    Raises:
        WhyformerError: If the model does not write, lacks room for the tokens, or an option cannot be used.

    Example:
        >>> len(whyformer.continuation("The film was", model="mini-gpt", tokens=2, method="rollout").tokens)
        2
    """
    loaded_model = resolve_model(model, processor)
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} does not write text: use explain.")
    check_written(tokens)
    if "target" in options:
        raise WhyformerError("A continuation explains every written token, so that it takes no target: use explain.")
    (encoded,) = encode(loaded_model, [example], truncate=truncate, room=tokens - 1)
    if prior:
        check_has_prior(loaded_model, encoded)
    if "image" in encoded.parts:
        settings = {"readout": readout, "batch_size": batch_size, "progress": progress, "backward": backward}
        return description(loaded_model, encoded, tokens, method, **settings, **options)
    if encoded.encoder_part is not None:
        ids = transcribe(loaded_model, model_inputs(loaded_model, [encoded]), tokens)
    else:
        _check_room(loaded_model, encoded, tokens - 1)
        ids = generate(loaded_model, model_inputs(loaded_model, [encoded]), tokens)
    exchange = _exchange(encoded, ids)
    rows = [ResponseRow(exchange, (number,)) for number in range(len(ids))]

    def run(choice: MethodChoice) -> list[Explanation]:
        engine = ScoringEngine(loaded_model, choice, logit_sum, readout, batch_size, progress)
        (scores,) = engine.explain([(exchange, rows)])
        return [
            replace(
                _explanation(loaded_model, choice, _after(loaded_model, encoded, number, ids[:number]), token, row),
                probability=math.exp(figures.log_probability),
                answers=_likely_tokens(loaded_model, token, figures),
            )
            for number, (token, row, figures) in enumerate(zip(ids, scores.rows, scores.statistics, strict=True))
        ]

    explanations = first_that_applies(method, backward, options, run, default_for(loaded_model.model))
    text, _, _ = decode_tokens(ids, loaded_model.tokenizer, _before(encoded))
    return Continuation(text, tuple(explanations), token_priors(loaded_model, exchange) if prior else ())


def _likely_tokens(loaded_model: LoadedModel, token: int, figures: TokenStatistics) -> dict[str, float]:
    """The likeliest tokens by name with their probabilities, most likely first; the explained one is among them."""
    names = Vocabulary(loaded_model.tokenizer)
    likely = [(token, math.exp(figures.log_probability)), *figures.alternatives]
    return {names[number]: chance for number, chance in sorted(likely, key=lambda one: -one[1])}


def _exchange(encoded: EncodedExample, ids: Sequence[int]) -> Exchange:
    prompt = () if encoded.chunk is None else tuple(encoded.chunk.encoding["input_ids"])
    beginning = None if encoded.written is None else tuple(encoded.written.encoding["input_ids"])
    return Exchange(prompt, tuple(ids), beginning, encoded.parts.get("image_text"), encoded.encoder_part)


def _explanation(
    loaded_model: LoadedModel, choice: MethodChoice, encoded: EncodedExample, token: int, row: ExchangeRowScores
) -> Explanation:
    """The Explanation of a token by the text before it."""
    if encoded.written is None:
        streams = {"text": (encoded.chunk, np.concatenate([row.prompt, row.response]))}
    else:
        written = np.concatenate([row.beginning, row.response])
        streams = {"source": (encoded.chunk, row.prompt), "target": (encoded.written, written)}
    words = {
        name: Part(chunk.layout, scores[list(chunk.positions)])
        for name, (chunk, scores) in streams.items()
        if chunk is not None and chunk.layout.size
    }
    parts = words | dict(row.parts) if encoded.chunk is not None else dict(row.parts) | words
    answer = ExplainedAnswer(
        encoded,
        parts,
        index=None,  # its probability is already known
        name=Vocabulary(loaded_model.tokenizer)[token],
        logits=None,
        is_sole=False,
        completeness=row.completeness,
        remarks=row.remarks,
    )
    explanation = explanation_of([answer], loaded_model, choice.method, {**choice.options, **choice.way})
    return replace(explanation, notes=(*choice.remarks, *explanation.notes))


def _check_room(loaded_model: LoadedModel, encoded: EncodedExample, room: int) -> None:
    """Check that an encoder-decoder has positions for the tokens."""
    limit = getattr(config_of(loaded_model.model), "max_position_embeddings", None)
    if encoded.written is None or limit is None:
        return
    length = len(encoded.written.encoding["input_ids"])
    if length + room > limit:
        raise WhyformerError(
            f"tokens={room + 1}: {loaded_model.name} has written {length} tokens and can write "
            f"{limit - length + 1} more."
        )


def _before(encoded: EncodedExample) -> list[int]:
    """The last token before the new ones, needed to decode leading spaces."""
    goes_on = encoded.chunk if encoded.written is None else encoded.written
    assert goes_on is not None
    return goes_on.encoding["input_ids"][-1:] if goes_on.layout.size else []


def _after(loaded_model: LoadedModel, encoded: EncodedExample, number: int, ids: Sequence[int]) -> EncodedExample:
    """The example after these tokens have been written."""
    if loaded_model.task.has_decoder:
        assert encoded.written is not None
        token_ids = encoded.written.encoding["input_ids"]
        start = len(token_ids) - encoded.written.layout.size
        written = written_of([*token_ids[start:], *ids], loaded_model, token_ids[:start])
        return EncodedExample(number, {**encoded.parts, "written": written})
    assert encoded.chunk is not None
    chunk = encoded.chunk
    layout = chunk.layout
    text, names, offsets = decode_tokens(list(ids), loaded_model.tokenizer, _before(encoded))
    start, first = len(layout.texts[-1]), len(chunk.encoding["input_ids"])
    longer = WordPieces(
        (*layout.texts[:-1], layout.texts[-1] + text),  # in a pair, new text follows the second
        layout.tokens + names,
        layout.segments + (len(layout.texts) - 1,) * len(ids),
        layout.offsets + tuple((start + a, start + b) for a, b in offsets),
    )
    encoding = {"input_ids": [*chunk.encoding["input_ids"], *ids]}
    encoding["attention_mask"] = [1] * len(encoding["input_ids"])
    positions = chunk.positions + tuple(range(first, first + len(ids)))
    places = tuple((segment, number) for number, segment in enumerate(longer.segments))
    return EncodedExample(number, {"text": Chunk(encoding, positions, places, longer, chunk.truncated_to)})
