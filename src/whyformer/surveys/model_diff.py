"""The difference of two models over the same data: answers, reasons, cues, telling samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whyformer.metrics.statistics import Interval
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import FALSE_DISCOVERY_RATE, LEAST_EFFECT


@dataclass(frozen=True)
class AnswerMove:
    """How many samples moved from one answer to another."""

    first: str
    second: str
    count: int


@dataclass(frozen=True)
class CueChange:
    """The effect of a cue in two models, on the first model's answer to the same samples.

    Attributes:
        cue: The cue.
        answer: The first model's answer to these samples; None for all samples.
        support: How many samples have the cue and this answer.
        samples: How many samples it was removed from.
        first: The first model's effect in nats: the drop of the answer's log-odds without the cue, beyond that of
            random equal parts.
        second: The second model's.
        change: The second less the first, with its 95 % interval over samples.
        p: The p-value of the change, by a paired permutation test.
        q: The false-discovery rate at which it is a discovery, over all cues.
    """

    cue: Cue
    answer: str | None
    support: int
    samples: int
    first: Interval
    second: Interval
    change: Interval
    p: float
    q: float = 1.0

    @property
    def is_changed(self) -> bool:
        """Whether the effect changed: proven, with false discoveries controlled, and by at least 0.05 nats."""
        return self.q <= FALSE_DISCOVERY_RATE and abs(self.change.value) >= LEAST_EFFECT


@dataclass(frozen=True)
class SampleChange:
    """A sample with the answers and scores of both models.

    Attributes:
        sample: The number of the sample in the data.
        name: Its name.
        label: Its own label, if known.
        answers: The answer of each model.
        probabilities: The probability of each.
        correlation: The rank correlation of the scores, if the answers are the same.
        words: An excerpt: each word with its score in each model, as a share of the largest.
        pictures: Data URIs of each model's heatmap.
    """

    sample: int
    name: str
    label: str | None
    answers: tuple[str, str]
    probabilities: tuple[float | None, float | None]
    correlation: float | None
    words: tuple[tuple[str, float, float], ...] = ()
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelDiff:
    """The difference of two models over a data set. Returned by `diff`.

    Attributes:
        models: The names of the models.
        methods: The method of each one's scores.
        kind: "text", "picture" or "sound".
        samples: How many samples both have read.
        changed_samples: The numbers of the samples with another answer.
        moves: How often each answer became another one, the most frequent first.
        labelled: How many samples have a label.
        wrong: How many wrong answers each model gives.
        compared: How many samples have the same answer and scores that can be compared.
        correlation: The mean rank correlation of their scores, with its interval; None without such samples.
        limit: The correlation below which reasons count as changed.
        moved_reasons: The numbers of the samples with the same answer for other reasons.
        cues: The cues that were tested, those with a proven and larger change first.
        examples: The ten most telling samples.
        notes: Caveats for the reader, in sentences.
        seconds: How long it took; less for a run that was resumed.
        file: The name of the file or folder of the data; empty for other data.

    Example:
        >>> import whyformer
        >>> films = ["a wonderful film", "a dull film", "I loved it, wonderful", "a dull and endless evening"] * 8
        >>> result = whyformer.diff("mini-bert", "mini-bert", films)
        >>> result.changed_share, result.reasons_share, len(result.changed_cues)
        (0.0, 0.0, 0)
    """

    models: tuple[str, str]
    methods: tuple[str, str]
    kind: str
    samples: int
    changed_samples: tuple[int, ...]
    moves: tuple[AnswerMove, ...]
    labelled: int
    wrong: tuple[int, int]
    compared: int
    correlation: Interval | None
    limit: float
    moved_reasons: tuple[int, ...]
    cues: tuple[CueChange, ...]
    examples: tuple[SampleChange, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    file: str = ""

    @property
    def changed_share(self) -> float:
        """The share of the answers that changed."""
        return len(self.changed_samples) / self.samples

    @property
    def reasons_share(self) -> float:
        """The share of the answers that stayed whose reasons changed."""
        return len(self.moved_reasons) / self.compared if self.compared else 0.0

    @property
    def changed_cues(self) -> tuple[CueChange, ...]:
        """The cues whose effect changed."""
        return tuple(change for change in self.cues if change.is_changed)

    @property
    def overview(self) -> tuple[str, str, str]:
        """The difference in three sentences: answers, reasons, cues."""
        from whyformer.surveys.diff_summary import diff_overview

        return diff_overview(self)

    def save(self, path: str | Path) -> None:
        """Save to a .html page, or to a .json file, which `load` reads.

        Args:
            path: The file; its suffix determines the format.

        Raises:
            WhyformerError: If the suffix is of no known format.
            OSError: If the file cannot be written.

        Example:
            >>> import tempfile, whyformer
            >>> result = whyformer.diff("mini-bert", "mini-bert", ["a wonderful film", "a dull film"] * 8)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     result.save(f"{folder}/diff.json")
            ...     whyformer.ModelDiff.load(f"{folder}/diff.json") == result
            True
        """
        from whyformer.surveys.diff_files import save_diff

        save_diff(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ModelDiff:
        """Load a .json file written by `save`.

        Args:
            path: The file.

        Returns:
            The difference.

        Raises:
            WhyformerError: If the file is damaged or not such a difference.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.surveys.diff_files import load_diff

        return load_diff(Path(path))

    def __str__(self) -> str:
        from whyformer.surveys.diff_summary import diff_text

        return diff_text(self)

    def __repr__(self) -> str:
        return (
            f"<ModelDiff of {' and '.join(self.models)} over {self.samples:,} {self.kind}s: "
            f"{len(self.changed_samples)} answers changed, {len(self.moved_reasons)} stayed for other reasons, "
            f"{len(self.changed_cues)} of {len(self.cues)} cues changed>"
        )
