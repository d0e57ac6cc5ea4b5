"""Measure how well methods explain a model on data, by protocols, at any scale, and write reports.

evaluate("mini-bert", texts, ["rollout", "grad_cam"], ["text_perturbation"]).to_pandas()
report(run_suite("suite.toml", "results", data="datasets"))
"""

from whyformer.benchmark.evaluation import Evaluation, evaluate
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import PROTOCOLS, Figure, Line, protocol
from whyformer.benchmark.reporting.page import report
from whyformer.benchmark.run_differences import differences
from whyformer.benchmark.runner import NoUsableSample, run_suite
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.suite import Suite, make_suite, read_suite, suite_schema

__all__ = [
    "PROTOCOLS",
    "Evaluation",
    "Figure",
    "Line",
    "NoUsableSample",
    "Shard",
    "Suite",
    "differences",
    "evaluate",
    "explained_labels",
    "explanations",
    "make_suite",
    "protocol",
    "read_suite",
    "report",
    "run_suite",
    "suite_schema",
]
