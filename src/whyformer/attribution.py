"""The calls: tensors in and raw scores out, or examples in and Explanations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.progress import track
from torch import Tensor, nn

from whyformer.answer import Answer, answers, explanation_of
from whyformer.axes import Inputs, StreamScores
from whyformer.dual import Pair, pairs_of, score_of
from whyformer.errors import WhyformerError, check_choice, with_article
from whyformer.explanation import Explanation
from whyformer.inputs import Piece, black, model_inputs
from whyformer.loading import Loaded, loaded
from whyformer.methods import Method, check_options, method_named
from whyformer.pieces import Vocabulary, pieces_of
from whyformer.ruled import Backward
from whyformer.score import Contrast, Detection, Target, logits_of, one_each
from whyformer.trace import trace

BATCH_SIZE = {"cpu": 8, "cuda": 64}
# What is computed where nobody names a method: the best of those measured (docs/results.md).
DEFAULT_METHOD = "bi_token"
DEFAULT_BACKWARD: Backward = "libra"


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    backward: Backward | None = None,
    **options: Any,
) -> StreamScores:
    """Raw scores at every position of every stream, for a batch of tensors as the model takes them.

    `readout` says where the answer is read if the model's family does not: "first", "mean", "first+mean", "last", a
    position, or a weight per position. `inputs_at_once` bounds how many copies of the batch a method that repeats it
    runs at once, counted in inputs; the batch itself is never split. `backward` "libra" takes gradients by LibraGrad's
    rules, under any method that reads gradients. Without a method it is what docs/results.md found best, bi_token with
    "libra"; a method that is named is its paper's, with "gradient".
    """
    chosen, backward = chosen_method(method, backward)
    check_options(chosen, options)
    if not isinstance(inputs, Mapping):
        raise WhyformerError(
            f"inputs are tensors by name, such as {{'pixel_values': …}}, not {with_article(type(inputs).__name__)}."
        )
    how: dict[str, Any] = {"readout": readout, "inputs_at_once": inputs_at_once, "backward": backward}
    asked = trace(model, inputs, target, reads=chosen.reading(options), **how)
    return chosen.scores(asked, **options)


def explain(
    example: Any,
    model: str | Path | nn.Module | Loaded = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    **settings: Any,
) -> Explanation:
    """Why the model answered as it did on one example: a picture, a text, a pair, or a file of them.

    Models of two senses take pairs: (picture, text), (picture, [texts]), (regions, question). A model that writes is
    asked about the next token; one with an encoder takes a text, or (text, what was written so far).

    `settings` are those of `explain_batch`, and the options of the method. Without a method it is what docs/results.md
    found best: bi_token, with gradients by LibraGrad's rules.
    """
    return explain_batch([example], model, target, method, **settings)[0]


def explain_batch(
    examples: Iterable[Any],
    model: str | Path | nn.Module | Loaded = "mini-vit",
    target: Target = "predicted",
    method: str | None = None,
    *,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """One Explanation per example, in their order, computed in batches that suit the model's device.

    Texts beyond the model's limit are explained in overlapping chunks, a token's score being the mean over the chunks
    that see it and the answer that of the mean logits; `truncate` explains the first chunk alone.
    """
    if isinstance(examples, (str, Path)):
        raise WhyformerError(f"explain_batch takes a list of examples, not {str(examples)[:40]!r} alone: use explain.")
    check_options(chosen_method(method, backward)[0], options)
    subject = loaded(model, processor)
    settings = {"readout": readout, "batch_size": batch_size, "progress": progress, "backward": backward, **options}
    if subject.compares and not callable(target):
        pairs = pairs_of(subject, list(examples), target, truncate=truncate)
        found = explain_pieces(subject, [pair.piece for pair in pairs], pairs, method, **settings)
        return [
            replace(x, target=pair.name, probability=pair.probability) for x, pair in zip(found, pairs, strict=True)
        ]
    return explain_pieces(subject, pieces_of(subject, examples, truncate=truncate), target, method, **settings)


def explain_pieces(
    subject: Loaded,
    pieces: Sequence[Piece],
    target: Target | list[Pair],
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """`explain_batch` of examples that were made into pieces already."""
    chosen, backward = chosen_method(method, backward)
    check_options(chosen, options)
    if batch_size is not None and batch_size < 1:
        raise WhyformerError(f"batch_size={batch_size}: at least 1.")
    device = next(subject.model.parameters()).device
    batch_size = batch_size or BATCH_SIZE.get(device.type, BATCH_SIZE["cpu"])
    targets = _settled(subject, pieces, target, batch_size)
    tensors = _as_tensors(options, subject)
    found: list[list[Answer]] = [[] for _ in {piece.example for piece in pieces}]
    batches = list(_batches(pieces, batch_size))
    for batch in track(batches, f"{chosen.name} on {subject.name}", transient=True, disable=not progress):
        each = [targets[piece.example] for piece in batch] if isinstance(targets, list) else targets
        asked = trace(
            subject.model,
            model_inputs(subject, batch),
            score_of(each, subject) if subject.compares and not callable(each) else each,
            reads=chosen.reading(options),
            readout=readout,
            backward=backward,
            labels=Vocabulary(subject.tokenizer) if subject.writes else None,
        )
        for piece, result in zip(batch, answers(asked, chosen, tensors, batch, subject), strict=True):
            found[piece.example].append(result)
    shown = options if backward == "gradient" else options | {"backward": backward}
    return [explanation_of(parts, subject, chosen, shown) for parts in found]


def chosen_method(name: str | None, backward: str | None = None) -> tuple[Method, Backward]:
    """The method, and how its gradients are taken."""
    method = method_named(DEFAULT_METHOD if name is None else name)
    if backward is None:
        return method, DEFAULT_BACKWARD if name is None else "gradient"
    check_choice("backward", backward, Backward)
    if backward != "gradient" and method.reads in ("last map", "maps", "last relevance", "input relevance"):
        raise WhyformerError(f"{method.name} reads no gradient: backward={backward!r} has nothing to do there.")
    return method, cast(Backward, backward)


def _as_tensors(options: dict[str, Any], subject: Loaded) -> dict[str, Any]:
    """The options with a black baseline in the model's own colours, which only its processor knows."""
    asked_for = options.get("baseline")
    is_black = isinstance(asked_for, str) and asked_for == "black"
    return options | {"baseline": black(subject.image_processor)} if is_black and subject.sees_pictures else options


def _settled(subject: Loaded, pieces: Sequence[Piece], target: Any, batch_size: int) -> Any:
    """The target of each example; one that needs several pieces is predicted from all of them."""
    if subject.compares:
        return target
    if subject.writes:
        return _as_tokens(target, subject, len({piece.example for piece in pieces}))
    if callable(target) or isinstance(target, (Contrast, Detection)):
        return target
    each = one_each(target, len({piece.example for piece in pieces}))
    parts = Counter(piece.example for piece in pieces)
    several = [piece for piece in pieces if each[piece.example] == "predicted" and parts[piece.example] > 1]
    logits: dict[int, list[Tensor]] = {}
    for batch in _batches(several, batch_size):
        with torch.no_grad():
            output = logits_of(subject.model(**model_inputs(subject, batch)))
        for piece, row in zip(batch, output, strict=True):
            logits.setdefault(piece.example, []).append(row)
    for example, rows in logits.items():
        each[example] = int(torch.stack(rows).mean(dim=0).argmax())
    return each


def _as_tokens(target: Target, subject: Loaded, count: int) -> Target:
    """A target in words as the tokens they are, one for each example."""
    if isinstance(target, Contrast):
        return Contrast(_token(target.label, subject), _token(target.other, subject))
    if callable(target) or isinstance(target, Detection):
        return target
    return [_token(label, subject) for label in one_each(target, count)]


def _token(label: Any, subject: Loaded) -> Any:
    """The token that a word begins with a space is, or failing that without one."""
    if not isinstance(label, str) or label == "predicted":
        return label
    for text in (f" {label}", label):
        ids = subject.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != subject.tokenizer.unk_token_id:
            return ids[0]
    ids = subject.tokenizer(label, add_special_tokens=False)["input_ids"]
    pieces = ", ".join(repr(Vocabulary(subject.tokenizer)[index]) for index in ids[:6])
    raise WhyformerError(f"{label!r} is not one token of {subject.name} but several ({pieces}): ask about the first.")


def _batches(pieces: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]
