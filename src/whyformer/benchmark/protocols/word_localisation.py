"""Words that a model writes about a picture, each compared with the object it describes."""

from __future__ import annotations

import torch
from torch import Tensor

from whyformer.benchmark.ground_truth import part_truths, pixel_truths
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.shard import Maps, Shard, explained_labels
from whyformer.metrics.perturbation_curves import Explained
from whyformer.metrics.pixel_maps import upsampled
from whyformer.metrics.sanity import mass_on_object, pointing_game
from whyformer.metrics.segmentation import precisions

# Kinds of prompts in scenes; all others are questions.
WORD_GROUPS = {"pair": "words of pairs", "scene": "words of whole scenes"}
ANSWER_WORDS = "answers"
ON_PICTURE = ("pointing game", "mass on the object", "average precision")


@protocol(
    "word_localisation",
    {
        **{figure: Figure(figure) for figure in ON_PICTURE},
        **{
            f"{figure}, {group}": Figure(f"{figure}, {group}")
            for group in (ANSWER_WORDS, *WORD_GROUPS.values())
            for figure in ON_PICTURE[:2]
        },
        "prompt: pointing game": Figure("prompt pointing game"),
        "prompt: average precision": Figure("prompt average precision"),
        "share on the picture": Figure("share on the picture", better="neither"),
    },
)
def word_localisation(shard: Shard, *, explained: Explained = "target") -> Columns:
    """Pixels and prompt words compared with those a written word depends on; words written wrongly are left out.

    The priors include a constant map.
    """
    truths, labels = pixel_truths(shard.batch), explained_labels(shard, explained)
    require(truths is not None, shard, "word_localisation", "pictures with masks")
    assert truths is not None
    is_wrong = shard.logits.argmax(dim=1) != shard.labels
    columns: Columns = {}
    for method, measures in _on_picture(shard, explanations(shard, labels, "image"), truths).items():
        columns |= {(method, name): values.masked_fill(is_wrong, torch.nan) for name, values in measures.items()}
    for method, measures in _on_prompt(shard, explanations(shard, labels, "text"), labels).items():
        columns |= {(method, name): values.masked_fill(is_wrong, torch.nan) for name, values in measures.items()}
    return columns


def _on_picture(shard: Shard, maps: Maps, truths: Tensor) -> dict[str, dict[str, Tensor]]:
    """The measures of every method's maps, for all words and each group."""
    uniform = {"uniform": torch.ones_like(next(iter(maps.values())))}
    groups = [WORD_GROUPS.get(sample.kind or "", ANSWER_WORDS) for sample in shard.batch.samples]
    is_of = {group: torch.tensor([group == one for one in groups], device=truths.device) for group in set(groups)}
    by_method = {}
    for method, scores in (maps | uniform).items():
        whole = upsampled(scores, shard.batch.image_size)
        values = (
            pointing_game(whole, truths),
            mass_on_object(whole, truths),
            precisions(whole.flatten(1), truths.flatten(1)),
        )
        measures = {name: each.double() for name, each in zip(ON_PICTURE, values, strict=True)}
        for group, here in is_of.items():
            measures |= {f"{name}, {group}": measures[name].masked_fill(~here, torch.nan) for name in ON_PICTURE[:2]}
        by_method[method] = measures
    return by_method


def _on_prompt(shard: Shard, maps: Maps, labels: Tensor) -> dict[str, dict[str, Tensor]]:
    """The prompt's words that name the object, and the picture's share of all scores."""
    truths, pictures = part_truths(shard.batch, "text"), explanations(shard, labels, "image")
    by_method = {}
    for method, scores in maps.items():
        on_picture = pictures[method].flatten(1).abs().sum(dim=1).double()
        total = on_picture + scores.abs().sum(dim=1)
        by_method[method] = {"share on the picture": on_picture / total.where(total > 0, 1.0)}
        if truths is not None:
            by_method[method] |= {
                "prompt pointing game": pointing_game(scores[:, None], truths[:, None]).double(),
                "prompt average precision": precisions(scores, truths).double(),
            }
    return by_method
