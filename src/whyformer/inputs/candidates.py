"""Candidate labels for zero-shot classification by a natural language inference (NLI) model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whyformer.errors import WhyformerError

TEMPLATE = "This example is {}."


@dataclass(frozen=True)
class Candidates:
    """Candidate labels of a text, each inserted into a hypothesis that the text may entail.

    With a text this is an example for a natural language inference model: (text, Candidates(labels)). A plain list of
    labels uses the default template.

    Args:
        labels: The candidate labels.
        template: The hypothesis, with {} in place of the label.

    Raises:
        WhyformerError: If there are no labels, or the template has no {}.

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
        """The hypothesis of each label."""
        return tuple(self.template.format(label) for label in self.labels)
