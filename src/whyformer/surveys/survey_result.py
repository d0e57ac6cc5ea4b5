"""The result of a survey: drivers with their proof, failures, the share of the object, examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whyformer.metrics.statistics import Interval
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import FALSE_DISCOVERY_RATE, Proof


@dataclass(frozen=True)
class CueExample:
    """A sample with a cue: an excerpt or small pictures, and what its removal changes.

    Attributes:
        sample: The number of the sample in the data.
        name: Its name.
        answer: The label that the model gives it.
        label: Its own label, if known.
        probability: The probability of the answer.
        words: An excerpt around the cue: each word, its score as a share of the largest, and whether it is removed.
        pictures: Data URIs: the picture or sound with its heatmap, and without the cue.
        drop: The drop of the answer's log-odds without the cue, in nats; None if it was not removed.
        without: The label that the model gives it without the cue.
        page: The page of its explanation, relative to the report; None if it has none.
    """

    sample: int
    name: str
    answer: str
    label: str | None
    probability: float | None
    words: tuple[tuple[str, float, bool], ...] = ()
    pictures: tuple[str, ...] = ()
    drop: float | None = None
    without: str | None = None
    page: str | None = None


@dataclass(frozen=True)
class LabelRelation:
    """How a word or phrase goes with the label that it drives.

    Attributes:
        here: The share of the label among the samples with the cue.
        elsewhere: The same among the held-out samples with it.
        samples: How many held-out samples have the cue.
        q: The false-discovery rate at which the relation is stronger here.
        differs: Whether it is stronger here (at most 5 %), and not proven to exist in the held-out data.
    """

    here: float
    elsewhere: float
    samples: int
    q: float
    differs: bool


@dataclass(frozen=True)
class Driver:
    """A cue that was tested: what it does to the decisions for an answer.

    Attributes:
        cue: The cue.
        answer: The answer of these decisions; None for all decisions.
        support: How many of these decisions have the cue.
        score: Its mean share of the scores beyond an equal share, from −1 to 1.
        leading: In what share of them it has one of the three highest scores.
        wrong: How many of them are wrong.
        proof: The effect of removing it.
        should_be_ignored: Whether it should not matter: it is on the user's list, at least 90 % of it is ignored
            background, or it goes with its label here but not in held-out data.
        examples: Some of the samples, those with the largest effect first.
        background: The mean share of its area in the background, if there are masks.
        relation: How it goes with the answer as a label, here and in held-out data, if there are such.
    """

    cue: Cue
    answer: str | None
    support: int
    score: float
    leading: float
    wrong: int
    proof: Proof
    should_be_ignored: bool = False
    examples: tuple[CueExample, ...] = ()
    background: float | None = None
    relation: LabelRelation | None = None

    @property
    def is_shortcut(self) -> bool:
        """Whether it should be ignored, and yet is proven to drive answers."""
        return self.should_be_ignored and self.proof.is_proven


@dataclass(frozen=True)
class FailureGroup:
    """Wrong answers to samples of one label that share the cues which misled the model: a cluster of cue profiles.

    Attributes:
        label: The right label.
        answer: The answer that the model gave.
        cue: The typical cue of the cluster, or several as a set, with the largest score for the wrong answer among
            those of such mistakes; None for the rest.
        count: How many wrong answers are in the group.
        mistakes: How many samples of the label got this answer.
        errors: The number of all wrong answers of the survey.
        proof: The effect of removing the cue from such samples; None without a cue.
        corrected: The share of them that the model answers rightly without the cue.
        examples: Some of them.
    """

    label: str
    answer: str
    cue: Cue | None
    count: int
    mistakes: int
    errors: int
    proof: Proof | None = None
    corrected: float | None = None
    examples: tuple[CueExample, ...] = ()


@dataclass(frozen=True)
class ObjectShare:
    """Whether the model looks at the object: the share of the answer's probability that goes with it.

    Attributes:
        share: Of the probability lost without the object and without the background, the share lost without the
            object: 1 if only the object matters, 0 if only the background does, with its 95 % interval.
        samples: The number of pictures.
        by: "masks", or "likely background" if there were none.
    """

    share: Interval
    samples: int
    by: str


@dataclass(frozen=True)
class Survey:
    """The cues that drive a model over a data set. Returned by `survey`.

    Attributes:
        model: The name of the model.
        method: The method of the scores.
        kind: "text", "picture" or "sound".
        samples: How many samples were read.
        answers: How often each answer was given.
        labelled: How many samples have a label.
        wrong: How many of these got another answer.
        tested: The cues that were tested, those with a proven and larger effect first.
        failures: Groups of wrong answers, the largest first.
        object_share: The share of the object, for pictures.
        montages: Typical patches of each cluster, as data URIs, by the name of its cue.
        notes: Caveats for the reader, in sentences.
        seconds: How long it took; less for a survey that was resumed.
        file: The name of the file or folder of the data; empty for other data.

    Example:
        >>> import whyformer
        >>> films = ["a wonderful film", "a dull film", "I loved it, wonderful", "a dull and endless evening"] * 8
        >>> result = whyformer.survey("mini-bert", films)
        >>> result.samples, result.answers["positive"]
        (32, 16)
    """

    model: str
    method: str
    kind: str
    samples: int
    answers: Mapping[str, int]
    labelled: int
    wrong: int
    tested: tuple[Driver, ...]
    failures: tuple[FailureGroup, ...] = ()
    object_share: ObjectShare | None = None
    montages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    file: str = ""

    @property
    def drivers(self) -> tuple[Driver, ...]:
        """The cues that passed the test of removal: those with the largest effect first."""
        return tuple(driver for driver in self.tested if driver.proof.is_proven)

    @property
    def not_proven(self) -> tuple[Driver, ...]:
        """The cues that were seen but did not pass the test."""
        return tuple(driver for driver in self.tested if not driver.proof.is_proven)

    @property
    def shortcuts(self) -> tuple[Driver, ...]:
        """The drivers that should be ignored."""
        return tuple(driver for driver in self.drivers if driver.is_shortcut)

    @property
    def overview(self) -> tuple[str, str, str]:
        """The survey in three sentences: its drivers, its failures, its shortcuts."""
        from whyformer.surveys.summary import overview

        return overview(self)

    def to_pandas(self) -> Any:
        """Convert to a pandas table with a row for each tested cue.

        Returns:
            A DataFrame with the columns cue, kind, answer, support, score, leading, wrong, drop, excess, probability,
            flips (each with _low and _high), random_flips, p, q, proven, should_be_ignored, background, label_here,
            label_held_out and shortcut.

        Raises:
            WhyformerError: If pandas is missing.

        Example:
            >>> import whyformer
            >>> films = ["a wonderful film", "a dull film"] * 16
            >>> list(whyformer.survey("mini-bert", films).to_pandas().columns)[:3]
            ['cue', 'kind', 'answer']
        """
        from whyformer.extras import extra
        from whyformer.surveys.survey_files import driver_row

        return extra("pandas").DataFrame([driver_row(driver) for driver in self.tested])

    def save(self, path: str | Path) -> None:
        """Save to a .html page, a .json file, which `load` reads, or a .parquet table of the cues.

        Args:
            path: The file; its suffix determines the format.

        Raises:
            WhyformerError: If the suffix is of no known format, or pyarrow is missing for .parquet.
            OSError: If the file cannot be written.

        Example:
            >>> import tempfile, whyformer
            >>> result = whyformer.survey("mini-bert", ["a wonderful film", "a dull film"] * 8)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     result.save(f"{folder}/films.json")
            ...     whyformer.Survey.load(f"{folder}/films.json") == result
            True
        """
        from whyformer.surveys.survey_files import save_survey

        save_survey(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Survey:
        """Load a .json file written by `save`.

        Args:
            path: The file.

        Returns:
            The survey.

        Raises:
            WhyformerError: If the file is damaged or not a survey.
            OSError: If there is no such file.

        Example:
            See `save`.
        """
        from whyformer.surveys.survey_files import load_survey

        return load_survey(Path(path))

    def __str__(self) -> str:
        from whyformer.surveys.summary import survey_text

        return survey_text(self)

    def __repr__(self) -> str:
        return (
            f"<Survey of {self.model} over {self.samples:,} {self.kind}s: {len(self.drivers)} of {len(self.tested)} "
            f"cues proven at a false-discovery rate of {FALSE_DISCOVERY_RATE}>"
        )
