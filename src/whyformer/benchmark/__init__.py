"""Suites: a model measured on data, by methods and protocols, at any scale; and the report of what was found.

evaluate("suite.toml", "results", data="datasets")
report("results")
"""

from whyformer.benchmark.differences import differences
from whyformer.benchmark.protocols import PROTOCOLS, protocol
from whyformer.benchmark.report.page import report
from whyformer.benchmark.runner import evaluate
from whyformer.benchmark.suite import Suite, read_suite, suite_of

__all__ = ["PROTOCOLS", "Suite", "differences", "evaluate", "protocol", "read_suite", "report", "suite_of"]
