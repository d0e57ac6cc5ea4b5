"""Choose the protocols that fit a model and its data, and the methods that compete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.samples import Sample
from whyformer.benchmark.suite import check_methods
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel

GAP = "negative − positive, probability"
# Some of every kind, none more expensive than the 18 answers that measuring a sample takes: integrated_gradients with
# 20 or 50 steps, and removal methods, only compete if named. Those missing from a version are left out.
CONTENDERS = (
    Choice("evidence"),
    Choice("state_x_gradient", {"backward": "attn_lrp"}),
    Choice("bi_token", {"backward": "libra"}),
    Choice("generic_attention"),
    Choice("generic_attention", {"backward": "libra"}),
    Choice("attention_gradient"),
    Choice("input_x_gradient"),
    Choice("input_x_gradient", {"backward": "libra"}),
    Choice("full_grad", {"backward": "libra"}),
    Choice("grad_cam"),
    Choice("rollout"),
)


@dataclass(frozen=True)
class Contest:
    """The deciding figure of a protocol, described in words, and protocols whose figures are shown with it."""

    protocol: Choice
    figure: str
    words: str
    beside: tuple[Choice, ...] = ()

    @property
    def protocols(self) -> tuple[Choice, ...]:
        return (self.protocol, *self.beside)


def contenders() -> list[Choice]:
    """The methods that compete by default, those of this version."""
    return [choice for choice in CONTENDERS if _is_known(choice)]


def _is_known(choice: Choice) -> bool:
    try:
        check_methods([choice])
    except WhyformerError:
        return False
    return True


def contest_for(loaded_model: LoadedModel, samples: Sequence[Sample]) -> Contest:
    """Choose the contest for this model and samples: how its output changes when parts of the input are removed."""
    task = loaded_model.task
    if all(sample.response is not None for sample in samples):
        words = "how much less probable a response is without the three sentences of highest score"
        return Contest(Choice("sources"), "drop of log p without the top 3", words)
    if task.sees_regions:
        return Contest(Choice("vqa_removal"), "regions, negative − positive", _removal("regions"))
    has_masks = all(sample.mask is not None for sample in samples)
    if all(sample.picture is not None for sample in samples):
        if task.compares:
            protocol = Choice("image_perturbation", {"fill": "mean", "domain": "0-1"})
        elif task.detects or task.writes:
            protocol = Choice("image_perturbation", {"explained": "target"})
        else:
            protocol = Choice("image_perturbation")
        beside = (Choice("segmentation"),) if has_masks and not task.detects and not task.writes else ()
        return Contest(protocol, GAP, _removal("pixels"), beside)
    if any(sample.picture is not None for sample in samples):
        raise WhyformerError(f"Some examples have pictures and some have none: give {loaded_model.name} one kind.")
    has_marks = all(sample.words is not None for sample in samples)
    beside = (Choice("rationales"),) if has_marks and not task.writes else ()
    return Contest(Choice("text_perturbation"), GAP, _removal("words"), beside)


def _removal(what: str) -> str:
    return f"how much longer the answer lasts when the least relevant {what} go first than when the most relevant do"
