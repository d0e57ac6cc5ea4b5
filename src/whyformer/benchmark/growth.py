"""Let a run grow: methods that are added later are measured on its samples, in files next to those it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.run_digests import PLUGINS, SUITE_FILE, code_digests, plugin_digest
from whyformer.benchmark.run_folder import has_tables, read_document
from whyformer.benchmark.run_plan import DIGESTS, GROWN, Earlier, RunPlan, suite_functions
from whyformer.benchmark.tables import ROW_TABLE, SAMPLE_TABLE, whole_table


def with_known_methods(folder: Path, plan: RunPlan, plugins: Sequence[Path] = ()) -> RunPlan:
    """The plan with the methods of the folder's run first, and after them those that are added to it."""
    if not plan.digests or not (folder / SUITE_FILE).is_file() or not has_tables(folder):
        return plan
    known = read_document(folder)
    earlier = tuple(map(_choice, known["methods"]))
    labels = {choice.label for choice in earlier}
    added = tuple(choice for choice in plan.suite.methods if choice.label not in labels)
    grown = (*known.get(GROWN, ()), *([len(earlier)] if added else ()))
    suite = replace(plan.suite, methods=(*earlier, *added))
    first = replace(suite, methods=suite.methods[: grown[0]] if grown else suite.methods)
    digests = plan.digests | code_digests(suite.methods)
    digests[PLUGINS] = _plugin_digest(known, plugins, first)
    return replace(plan, suite=suite, grown=grown, digests=digests)


def _plugin_digest(known: dict[str, Any], plugins: Sequence[Path], first: Any) -> str:
    """The digest of the run's first plugins; files that come after them may define methods that are added."""
    functions = list(suite_functions(first))
    digests = [plugin_digest(plugins[:count], functions) for count in range(len(plugins), -1, -1)]
    before = (known.get(DIGESTS) or {}).get(PLUGINS)
    return before if before in digests else digests[0]


def growth_plan(folder: Path, plan: RunPlan, growth: int) -> RunPlan:
    """The plan of the methods of one growth; 0 is the run itself."""
    ends = (0, *plan.grown, len(plan.suite.methods))
    own = replace(plan, suite=replace(plan.suite, methods=plan.suite.methods[ends[growth] : ends[growth + 1]]))
    if not growth:
        return own
    rows = whole_table(folder, ROW_TABLE, ["protocol", "method"], before=growth)
    values = rows.group_by(["protocol", "method"]).aggregate([]).to_pylist()
    samples = whole_table(folder, SAMPLE_TABLE, ["sample", "error"]).to_pylist()
    unusable = frozenset(one["sample"] for one in samples if one["error"])
    return replace(own, earlier=Earlier(frozenset((one["protocol"], one["method"]) for one in values), unusable))


def _choice(document: dict[str, Any]) -> Choice:
    return Choice(document["name"], {key: value for key, value in document.items() if key != "name"})
