"""Suites: a model measured on data, by methods and protocols, at any scale; and the report of what was found.

evaluate("suite.toml", "results", data="datasets")
report("results")
"""

from whyformer.run.differences import differences
from whyformer.run.evaluation import evaluate
from whyformer.run.protocols import PROTOCOLS, protocol
from whyformer.run.report import report
from whyformer.run.suite import Suite, read_suite, suite_of

__all__ = ["PROTOCOLS", "Suite", "differences", "evaluate", "protocol", "read_suite", "report", "suite_of"]
