"""Candidate labels for a model that was trained on inference (NLI), which never saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whyformer.errors import WhyformerError

TEMPLATE = "This example is {}."


@dataclass(frozen=True)
class Candidates:
    """Labels that a text may have, each put into a sentence that the text entails or not.

    With a text it is an example for a model of natural language inference: (text, Candidates(labels)). A list of labels
    is the same with the usual sentence.

    Args:
        labels: The candidate labels.
        template: The sentence, with {} where the label goes.

    Raises:
        WhyformerError: If there is no label, or no {} in the template.

    Example:
        >>> import whyformer
        >>> whyformer.Candidates(["sport", "politics"], template="It is about {}.").hypotheses
        ('It is about sport.', 'It is about politics.')
    """

    labels: Sequence[str]
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        if isinstance(self.labels, str) or not self.labels or not all(isinstance(one, str) for one in self.labels):
            raise WhyformerError(f"Candidates are a list of at least one label, not {self.labels!r:.60}.")
        if "{}" not in self.template:
            raise WhyformerError(f"The template {self.template!r} has no {{}} where the label goes.")

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """The sentence of each label."""
        return tuple(self.template.format(label) for label in self.labels)
