"""Explain examples: files, pictures, texts and pairs, singly or in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from whyformer.api.assemble import ExplainedAnswer, answers, explanation_of
from whyformer.api.attribute import MethodChoice, choose_method, default_for, first_that_applies
from whyformer.api.audit import origin_of
from whyformer.api.batch_scores import score_batch
from whyformer.api.batches import BATCH_SIZE, example_batches
from whyformer.api.predictions import Predict, explain_predictions, refuse_beside_predict
from whyformer.api.what_if import remover_of
from whyformer.backward.rules import Backward
from whyformer.batching import check_batch_size, consecutive, in_batches
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.identity import example_file_name
from whyformer.inputs.read import strings_are_texts, texts_in_file
from whyformer.methods.option_checks import check_options
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.models.structure import device_of, needs_padding_token
from whyformer.progress import track
from whyformer.results.explanation import Explanation
from whyformer.targets.encoded_targets import encoded_targets, is_definite
from whyformer.targets.head_target import HeadTarget, score_of
from whyformer.targets.heads import head_targets, needs_example
from whyformer.targets.scores import Target, one_each


def explain(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    *,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    backward: Backward | None = None,
    predict: Predict | None = None,
    labels: Sequence[str] | None = None,
    **options: Any,
) -> Explanation:
    """Explain a model's answer to one example.

    Args:
        example: A picture (file, PIL image, uint8 array), a text (string, or a Path of a text file) or a sound (file,
            (array, rate), `Sound`). Multimodal models take pairs: (picture, text), (picture, [texts]), (regions,
            question). A generative model is explained at its next token. One with an encoder takes a text or a sound,
            or a pair of it and the output so far. One that reads pictures takes (picture, text), ([pictures], text), or
            chat messages with pictures. Models of two texts take (question, passage), (prompt, [choices]), (text,
            [candidate labels]), (text, other text).
        model: The name of a bundled model (`whyformer models`), a folder, a Hugging Face id, a LoadedModel, or a
            module that you have loaded.
        target: A label's name or index, "predicted", `contrast(…)`, `detection(…)`, `moment(…)`, `at(…)`, `Pixel(…)`,
            `Region(…)`, or a function of the model's output that returns one number per example.
            See docs/guides/models.md and docs/guides/heads.md for each head.
        method: The name of a method (`whyformer methods`). By default evidence, or
            generic_attention with LibraGrad's rules for models that write about pictures (docs/results/default.md). If
            that does not apply to the model, the best method that does, with a note.
        processor: The tokenizer or image processor of your own module, if its folder has none.
        readout: The read-out, if the model's family does not define it, as in `attribute`.
        truncate: Whether to cut a text that is longer than the model's limit, as the tokenizer does. By default it is
            explained in overlapping chunks, with scores averaged over the chunks that contain a token.
        backward: "gradient", "libra" for LibraGrad's rules, or "attn_lrp" for AttnLRP's, for any method that reads
            gradients.
        predict: Instead of a model, a function that takes a list of examples, strings or PIL images, and returns an
            array [example, label]: a served model or an API. It is explained by a method that removes words, patches or
            superpixels, by default kernel_shap (docs/guides/served.md).
        labels: The names of the labels that `predict` scores.
        **options: The options of the method. Methods that read gradients also take `noise` and `noise_samples`:
            SmoothGrad, the mean over Gaussian noise on the input, with its size as a share of the input's range.

    Returns:
        The Explanation: scores, the answer and its probability; print it, show it, save it.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If the example, the model, the target or an option cannot be used as given.

    Example:
        >>> explanation = whyformer.explain("A wonderful film.", model="mini-bert")
        >>> explanation.target
        'positive'
        >>> max(explanation.words(), key=lambda word: word.score).text
        'wonderful'
    """
    (explanation,) = explain_batch(
        [example],
        model,
        target,
        method,
        processor=processor,
        readout=readout,
        truncate=truncate,
        backward=backward,
        predict=predict,
        labels=labels,
        **options,
    )
    return explanation


def explain_batch(
    examples: Iterable[Any] | str | Path,
    model: str | Path | nn.Module | LoadedModel = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    *,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    predict: Predict | None = None,
    labels: Sequence[str] | None = None,
    column: str | None = None,
    **options: Any,
) -> list[Explanation]:
    """Explain a model's answers to many examples, in batches.

    Args:
        examples: A list of examples, as in `explain`; or a .csv, .tsv, .jsonl or .parquet file with a text in each
            row.
        model: As in `explain`.
        target: One for all examples, or a list with one per example.
        method: As in `explain`.
        processor: As in `explain`.
        readout: As in `explain`.
        truncate: As in `explain`.
        batch_size: The number of examples that run at once; by default 64 on a GPU, and on a CPU 2 pictures or as many
            texts of similar length as are worthwhile.
        progress: Whether to show a progress bar.
        backward: As in `explain`.
        predict: As in `explain`; `batch_size` is the number of examples per call, by default 32.
        labels: As in `explain`.
        column: The column of a file with the texts; by default the only one, or the one with a common name (text,
            sentence, review, content, question and so on).
        **options: The options of the method.

    Returns:
        One Explanation per example, in order.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If an example, the model, the target or an option cannot be used as given.

    Example:
        >>> reviews = ["A wonderful film.", "A dull and boring film."]
        >>> [explanation.target for explanation in whyformer.explain_batch(reviews, model="mini-bert")]
        ['positive', 'negative']
    """
    if isinstance(examples, (str, Path)):
        settings = {"processor": processor, "readout": readout, "truncate": truncate, "batch_size": batch_size}
        settings |= {"progress": progress, "backward": backward, "predict": predict, "labels": labels, **options}
        texts = texts_in_file(examples, column)
        with strings_are_texts():
            return explain_batch(texts, model, target, method, **settings)
    if column is not None:
        raise WhyformerError(f"column={column!r} applies to a file, but these examples are a list: leave it out.")
    if predict is not None:
        refuse_beside_predict(model=model, processor=processor, readout=readout, truncate=truncate, backward=backward)
        answering: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
        return explain_predictions(list(examples), predict, labels, target, method, **answering, **options)
    if labels is not None:
        raise WhyformerError("labels are the names of predict's labels: leave them out for a model, which has its own.")
    if method is not None:
        check_options(choose_method(method, backward)[0], options)
    loaded_model = resolve_model(model, processor)
    settings = {"readout": readout, "batch_size": batch_size, "progress": progress, "backward": backward, **options}
    examples = list(examples)
    if not callable(target) and needs_example(loaded_model, examples):
        targets = head_targets(loaded_model, examples, target, truncate=truncate)
        explanations = explain_encoded(loaded_model, [one.encoded for one in targets], targets, method, **settings)
        by_example = {one.encoded.example: one for one in targets}
        explanations = [_with_name(one, by_example[number]) for number, one in enumerate(explanations)]
    else:
        encoded = encode(loaded_model, examples, truncate=truncate)
        explanations = explain_encoded(loaded_model, encoded, target, method, **settings)
    origins = [
        origin_of(loaded_model, example, each, readout, truncate)
        for example, each in zip(examples, one_each(target, len(examples)), strict=True)
    ]
    removers = [
        remover_of(loaded_model, example, each, truncate, method, {"readout": readout, "backward": backward, **options})
        for example, each in zip(examples, one_each(target, len(examples)), strict=True)
    ]
    return [
        replace(one, audit=origin, remover=remover, file=example_file_name(example))
        for one, origin, remover, example in zip(explanations, origins, removers, examples, strict=True)
    ]


def _with_name(explanation: Explanation, target: HeadTarget) -> Explanation:
    """Add the target of its example, and remarks on it, to the explanation."""
    notes = (*target.notes, *explanation.notes)
    return replace(explanation, target=target.name, probability=target.probability, notes=notes)


def explain_encoded(
    loaded_model: LoadedModel,
    encoded: Sequence[EncodedExample],
    target: Target | Sequence[HeadTarget],
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """`explain_batch` for encoded examples, with resolved targets in the same order."""
    batch_size = 1 if needs_padding_token(loaded_model.model) else check_batch_size(batch_size)
    size = batch_size or BATCH_SIZE.get(device_of(loaded_model.model).type, BATCH_SIZE["cpu"])
    targets = encoded_targets(loaded_model, encoded, target, size)
    items = list(zip(encoded, targets if isinstance(targets, list) else repeat(None), strict=False))
    # A user's own function, or weights per example, may depend on their order.
    keeps_order = callable(targets) or isinstance(readout, Tensor)
    if len({one.length for one in encoded}) > 1:
        size = 1  # only examples of equal length run together

    def run(choice: MethodChoice) -> list[Explanation]:
        by_example: list[list[ExplainedAnswer]] = [[] for _ in {one.example for one in encoded}]
        reads = choice.method.reads_with(choice.options)
        batches = (
            consecutive(len(encoded), size)
            if keeps_order
            else example_batches(loaded_model, encoded, batch_size, reads)
        )
        doing = f"{choice.method.name} on {loaded_model.name}"

        def answer(batch: Sequence[tuple[EncodedExample, Any]], checkpoint: bool | None) -> list[ExplainedAnswer]:
            own = [target for _, target in batch] if isinstance(targets, list) else targets
            steps = partial(track, description=doing, progress=progress and reads.subsets)
            return _answers(loaded_model, [one for one, _ in batch], own, choice, readout, checkpoint, steps)

        # Methods that run the model hundreds of times show progress within each batch.
        bar, by_blocks = progress and not reads.subsets, choice.can_go_by_blocks
        results = in_batches(items, answer, batches, doing, progress=bar, can_go_by_blocks=by_blocks)
        for one, each_answer in zip(encoded, results, strict=True):
            by_example[one.example].append(each_answer)
        explanations = [
            explanation_of(parts, loaded_model, choice.method, {**choice.options, **choice.way}) for parts in by_example
        ]
        return [replace(one, notes=(*choice.remarks, *one.notes)) for one in explanations]

    return first_that_applies(method, backward, options, run, default_for(loaded_model.model))


def _answers(
    loaded_model: LoadedModel,
    batch: Sequence[EncodedExample],
    target: Any,
    choice: MethodChoice,
    readout: str | int | Tensor | None,
    checkpoint: bool | None,
    steps: Callable[[Sequence[int]], Iterable[int]],
) -> list[ExplainedAnswer]:
    """Run the chosen method on a batch."""
    score = score_of(target) if is_definite(target) else target
    settings: dict[str, Any] = {"readout": readout, "checkpoint": checkpoint, "track": steps}
    inputs = model_inputs(loaded_model, batch)
    return list(answers(score_batch(loaded_model, inputs, score, choice, batch, **settings), batch, loaded_model.task))
