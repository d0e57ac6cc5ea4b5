"""The scripts that measure can be started: what they import is there. One that needs Triton is only parsed."""

import ast
import importlib
from pathlib import Path

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py"))
ELSEWHERE = {"fold", "agentdojo_transcripts"}  # with Triton, or in an environment of their own


def test_a_benchmark_finds_what_it_imports():
    for name in SCRIPTS:
        if name not in ELSEWHERE:
            importlib.import_module(name)
            continue
        path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("whyformer"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), name


def test_the_study_of_quadratures_compares_them_on_a_trace():
    quadrature = importlib.import_module("quadrature")
    models = importlib.import_module("tiny_models")
    build = importlib.import_module("whyformer.tracing.build")
    reads = importlib.import_module("whyformer").METHODS["bi_token"].reads
    rows = quadrature.study(build.trace(models.FAMILIES["vit"](), models.image_inputs(), 1, reads=reads))
    errors = {(row["rule"], row["steps"]): row["error"] for row in rows}
    assert errors["gauss", 8] <= errors["uniform", 8]
    assert errors["midpoint", 40] < errors["midpoint", 1]
