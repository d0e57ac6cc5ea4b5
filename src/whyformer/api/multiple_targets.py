"""Explain several targets of one example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from whyformer.api.explain import explain, explain_batch
from whyformer.backward.rules import Backward
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.results.explanation import Explanation
from whyformer.targets.heads import every_target, needs_example
from whyformer.targets.scores import Target


def explain_targets(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-vit",
    targets: Sequence[Target] | None = None,
    method: str | None = None,
    *,
    processor: Any = None,
    truncate: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> list[Explanation]:
    """Explain several answers of a model to one example.

    Args:
        example: As in `explain`.
        model: As in `explain`.
        targets: Targets, as in `explain`. By default every answer of the model: the entities of a text, each mask, each
            choice or candidate, and the labels or detected objects with a probability above one half. For other models
            it is the predicted label.
        method: As in `explain`.
        processor: As in `explain`.
        truncate: As in `explain`.
        backward: As in `explain`.
        **options: The options of the method.

    Returns:
        One Explanation per target, in order; empty if the model finds nothing.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If the example, the model, a target or an option cannot be used as given.

    Example:
        >>> both = whyformer.explain_targets("A dull film.", "mini-bert", ["negative", "positive"])
        >>> [explanation.target for explanation in both]
        ['negative', 'positive']
    """
    if isinstance(targets, str):
        raise WhyformerError(f"explain_targets takes a list of targets, not one ({targets!r:.40}): use explain.")
    loaded_model = resolve_model(model, processor)
    each: list[Any] = every_target(loaded_model, example, truncate=truncate) if targets is None else list(targets)
    settings: dict[str, Any] = {"truncate": truncate, "backward": backward, **options}
    are_together = needs_example(loaded_model, [example]) and not any(map(callable, each))
    if are_together or all(isinstance(target, (str, int)) for target in each):
        return explain_batch([example] * len(each), loaded_model, each, method, **settings)
    return [explain(example, loaded_model, target, method, **settings) for target in each]
