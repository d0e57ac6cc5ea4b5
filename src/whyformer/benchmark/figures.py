"""Compute the figures of a run from its tables: values with intervals, curves, and tests between methods."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.protocols import Figure, protocol_named
from whyformer.benchmark.run_folder import check_run, read_document, ungrown_samples
from whyformer.benchmark.tables import NOTE, ROW_TABLE, SAMPLE_TABLE, Record, whole_table
from whyformer.errors import WhyformerError, check_choice
from whyformer.extras import extra
from whyformer.metrics.statistics import RESAMPLES, OfTexts, draws, interval, paired_comparison


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measure of one method: its samples, their values [sample, value] or texts, and the points of a curve."""

    samples: list[int]
    values: Any
    at: list[float]

    @property
    def by_sample(self) -> dict[int, Any]:
        """The value of each sample that has one."""
        if isinstance(self.values, list):
            return dict(zip(self.samples, self.values, strict=True))
        single = self.values[:, 0] if self.values.shape[1] == 1 else self.values
        known = np.isfinite(self.values).all(axis=1)
        return {sample: value for sample, value, is_known in zip(self.samples, single, known, strict=True) if is_known}


Half = Literal["first", "second"]
MeasurementTable = dict[str, dict[str, Measurement]]  # by measure and method


@dataclass(frozen=True, eq=False)
class Run:
    """Contents of a run folder; its many rows are a pyarrow.Table."""

    suite: dict[str, Any]
    samples: list[Record]
    rows: Any
    remarks: tuple[str, ...] = ()  # remarks on its figures
    ungrown: int = 0  # samples that methods added to the run are still to be measured on

    @property
    def used(self) -> list[Record]:
        return [sample for sample in self.samples if not sample["error"]]

    @property
    def choices(self) -> list[Choice]:
        """The suite's protocols."""
        return self._choices("protocols")

    @property
    def methods(self) -> list[Choice]:
        """The suite's methods."""
        return self._choices("methods")

    def _choices(self, what: str) -> list[Choice]:
        return [Choice(one["name"], {k: v for k, v in one.items() if k != "name"}) for one in self.suite[what]]

    def half(self, which: Half) -> Run:
        """The samples of one half, and the notes; samples are divided by a digest of their name, as in any suite."""
        check_choice("half", which, Half)
        here = [sample for sample in self.samples if half_of(sample["name"]) == which]
        numbers, compute = [sample["sample"] for sample in here], extra("pyarrow.compute")
        of_sample = compute.is_in(self.rows["sample"], extra("pyarrow").array(numbers, "int32"))
        kept = compute.or_(of_sample, compute.equal(self.rows["protocol"], NOTE))
        return replace(
            self, suite=self.suite | {"count": len(here), "half": which}, samples=here, rows=self.rows.filter(kept)
        )

    def of(self, protocol: str) -> MeasurementTable:
        """The rows of a protocol, by its label."""
        equal = extra("pyarrow.compute").equal
        rows = self.rows.filter(equal(self.rows["protocol"], protocol))
        by_measure: MeasurementTable = {}
        for measure in rows["measure"].unique().to_pylist():
            here = rows.filter(equal(rows["measure"], measure))
            methods = here["method"].unique().to_pylist()
            by_measure[measure] = {
                method: _measurement(here.filter(equal(here["method"], method))) for method in methods
            }
        return by_measure


def half_of(name: str) -> Half:
    """The half that a sample belongs to, by name."""
    return "first" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "second"


def read_run(folder: str | Path) -> Run:
    """Read the run in a folder; raise if its files have changed."""
    document = read_document(Path(folder))
    remarks = check_run(Path(folder), document)
    light = ["sample", "name", "label", "predicted", "error"]
    samples = whole_table(Path(folder), SAMPLE_TABLE, light).to_pylist()
    if not samples:
        raise WhyformerError(f"{str(folder)!r} holds no finished shard yet.")
    if all(sample["error"] for sample in samples):
        reason = samples[0]["error"]
        raise WhyformerError(f"{str(folder)!r} holds no results: none of its samples could be used. {reason}")
    ungrown = ungrown_samples(Path(folder), document)
    if ungrown:
        remarks += (f"Not finished: methods that were added are still to be measured on {ungrown} samples.",)
    return Run(document, samples, whole_table(Path(folder), ROW_TABLE), remarks, ungrown)


def _measurement(rows: Any) -> Measurement:
    samples = rows["sample"].to_pylist()
    if rows["text"].null_count < len(rows):
        return Measurement(samples, rows["text"].to_pylist(), [])
    values = rows["values"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(samples), -1)
    return Measurement(samples, values, rows["at"][0].as_py() or [])


def make_figures(run: Run) -> dict[str, Any]:
    """All tables and curves of a run, as plain data."""
    seed = run.suite["seed"]
    left_out = {method: reasons.values[0] for method, reasons in run.of(NOTE).get("left out", {}).items()}
    return {
        "suite": run.suite,
        "samples": len(run.used),
        "accuracy": _accuracy(run.used),
        "errors": [{key: sample[key] for key in ("name", "error")} for sample in run.samples if sample["error"]],
        "left_out": left_out,
        **({"remarks": list(run.remarks)} if run.remarks else {}),
        "protocols": [_protocol(run, choice, seed) for choice in run.choices],
    }


def sample_values(run: Run, choice: Choice, name: str) -> tuple[Figure, dict[str, dict[int, Any]]]:
    """A figure of a protocol, and the sample values of every method."""
    figure = protocol_named(choice.name).figures[name]
    return figure, {method: one.by_sample for method, one in run.of(choice.label)[figure.measure].items()}


def _accuracy(samples: Sequence[Record]) -> float | None:
    known = [sample["predicted"] == sample["label"] for sample in samples if sample["label"] is not None]
    return float(np.mean(known)) if known else None


def _protocol(run: Run, choice: Choice, seed: int) -> dict[str, Any]:
    rows = run.of(choice.label)
    named = protocol_named(choice.name).figures
    tables = [
        _table(name, figure, rows[figure.measure], seed, is_main=number == 0) | _most(figure, choice)
        for number, (name, figure) in enumerate(named.items())
        if figure.measure in rows
    ]
    lines = {m: by_method for m, by_method in rows.items() if any(one.at for one in by_method.values())}
    curves = {measure: _curves(by_method, seed) for measure, by_method in lines.items()}
    return {"protocol": choice.label, "name": choice.name, "tables": [t for t in tables if t["rows"]], "curves": curves}


def _most(figure: Figure, choice: Choice) -> dict[str, float]:
    """The maximum of the figure, if it is not 1."""
    most = 1.0 if figure.most is None else figure.most(choice.options)
    return {} if most == 1 else {"most": most}


def _table(
    name: str, figure: Figure, by_method: Mapping[str, Measurement], seed: int, *, is_main: bool
) -> dict[str, Any]:
    """A figure of every method, best first, compared with the best; for the main figure all pairs are compared."""
    data = {method: values for method, one in by_method.items() if (values := one.by_sample)}
    all_intervals = {method: interval_of(figure, list(values.values()), seed) for method, values in data.items()}
    intervals = {method: one for method, one in all_intervals.items() if one is not None}
    sign = {"higher": -1.0, "lower": 1.0, "neither": 0.0}[figure.better]
    order = sorted(intervals, key=lambda method: (sign * intervals[method]["value"], method))
    best = order[0] if order and figure.better != "neither" else None
    rows = []
    for method in order:
        row: dict[str, Any] = {"method": method, "samples": len(data[method]), **_finite(intervals[method])}
        if best is not None and method != best:
            test = compare_runs(figure, data[method], data[best], seed)
            row["to_best"] = None if test is None else _finite(test)
        rows.append(row)
    pairs = [
        {"first": first, "second": second, **_finite(test)}
        for first, second in (combinations(order, 2) if is_main and figure.of_texts is None else ())
        if (test := compare_runs(figure, data[first], data[second], seed)) is not None
    ]
    about = {"better": figure.better, "is_share": figure.is_share}
    return {"figure": name, **about, "rows": rows, "pairs": pairs}


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Replace NaN by None, which JSON lacks: the interval of a single sample is NaN."""
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def value_of(figure: Figure, values: Sequence[Any]) -> float:
    """Compute a figure from sample values."""
    rows, of = _rows_and_figure(figure, values)
    return float(of(rows))


def interval_of(figure: Figure, values: Sequence[Any], seed: int) -> dict[str, float] | None:
    """The interval of a figure; None if undefined, such as the precision of large objects without any."""
    if not np.isfinite(value_of(figure, values)):
        return None
    rows, of = _rows_and_figure(figure, values)
    return asdict(interval(rows, of, resamples=figure.resamples, seed=seed))


def compare_runs(
    figure: Figure, first: Mapping[int, Any], second: Mapping[int, Any], seed: int
) -> dict[str, float] | None:
    """The difference of the first and the second on the samples that both have; None for a single sample."""
    shared = [sample for sample in first if sample in second]
    if len(shared) < 2:
        return None
    (one, of), (other, _) = (_rows_and_figure(figure, [values[n] for n in shared]) for values in (first, second))
    test = paired_comparison(one, other, of, resamples=figure.resamples, seed=seed)
    return {**asdict(test.difference), "p": test.p}


def _rows_and_figure(figure: Figure, values: Sequence[Any]) -> tuple[Any, Callable[[Any], float]]:
    """Rows to resample, and a function that computes the figure of resampled rows."""
    if figure.of_texts is not None:
        return np.array(values, dtype=object), OfTexts(figure.of_texts)
    return np.asarray(values, dtype=np.float64), figure.of


def _curves(by_method: Mapping[str, Measurement], seed: int) -> dict[str, Any]:
    """The mean curve of each method with its pointwise 95 % interval."""
    curves: dict[str, Any] = {}
    for method, one in by_method.items():
        values = one.values[np.isfinite(one.values).all(axis=1)]
        if len(values):
            means = draws(len(values), RESAMPLES, seed) @ values / len(values)
            low, high = np.percentile(means, [2.5, 97.5], axis=0)
            curves[method] = {
                "at": one.at,
                "mean": values.mean(axis=0).tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
            }
    return curves
