"""Plugins: files and packages of a user's own, on the command line and in Python."""

import importlib.metadata
import json
import re
import sys
from importlib.metadata import EntryPoint

import pytest

from commands import invoke, process, refusal, run
from whyformer import METHODS, WhyformerError, explain, load
from whyformer import plugins as plugins_module
from whyformer.benchmark import suite_schema
from whyformer.extend import load_plugins

PLUGIN = '''
from whyformer.extend import Reads, head_mean, method


@method("first_block_attention", reads=Reads(maps="all"))
def first_block_attention(trace, *, scale: float = 1.0):
    """The read-out's row of the first block's attention."""
    row = trace.readout.weights[:, None, :] @ head_mean(trace.records[0].map)
    return {trace.readout.stream: scale * row[:, 0]}
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A file with one method; what it registers is forgotten after the test."""
    known, modules = dict(METHODS), set(sys.modules)
    monkeypatch.setattr(plugins_module, "_FILES", {})
    path = tmp_path / "my_methods.py"
    path.write_text(PLUGIN)
    yield path
    METHODS.clear()
    METHODS.update(known)
    for name in set(sys.modules) - modules:
        if name.startswith("whyformer_plugin_"):
            del sys.modules[name]


def test_a_method_of_a_plugin_is_used_by_name(plugin, vit, photo):
    command = ["explain", photo, "--model", vit, "--method", "first_block_attention", "--json"]
    assert "No method named 'first_block_attention'" in refusal(*command)
    found = json.loads(run(*command, "--plugin", plugin, "--option", "scale=2"))
    twice = explain(photo, load(vit), method="first_block_attention").scores * 2
    assert found["parts"]["image"]["scores"] == pytest.approx(twice.tolist())
    assert found["options"] == {"scale": 2}


@pytest.mark.parametrize("command", ["compare", "continue", "doctor", "methods", "evaluate"])
def test_every_command_that_runs_methods_takes_plugins(plugin, vit, photo, tmp_path, command):
    suite = tmp_path / "suite.toml"
    suite.write_text("nonsense = 1")
    arguments = {
        "compare": [photo, "--model", vit, "--method", "first_block_attention", "--json"],
        "continue": ["The film was", "--tokens", 1, "--method", "first_block_attention", "--json"],
        "doctor": [vit, "--json"],
        "methods": ["--json"],
        "evaluate": [suite, "--out", tmp_path / "out"],
    }
    result = invoke(command, *arguments[command], "--plugin", plugin)
    assert "first_block_attention" in METHODS
    if command != "evaluate":
        assert result.exit_code == 0
        assert "first_block_attention" in result.stdout


def test_a_real_process_lists_the_methods_of_a_plugin(plugin):
    result = process("methods", "--plugin", plugin, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    *documents, document = json.loads(result.stdout)
    assert documents == json.loads(run("methods", "--json"))
    assert (document["name"], document["options"]) == ("first_block_attention", {"scale": 1.0})
    assert document["summary"] == "The read-out's row of the first block's attention."


def test_a_file_is_run_once_until_it_changes(plugin):
    counter = "import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\n"
    plugin.write_text(counter)
    try:
        for _ in range(2):
            assert load_plugins(plugin, entry_points=False) == (str(plugin.resolve()),)
        assert sys.runs == 1
        plugin.write_text(counter + "# changed\n")
        load_plugins([str(plugin)], entry_points=False)
        assert sys.runs == 2
    finally:
        del sys.runs


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import whyformer\n\nwhyformer.nonsense\n", "line 3: AttributeError: module 'whyformer' has no attribute"),
        ("def broken(:\n    pass\n", "line 1: SyntaxError: "),
        ("\nimport no_such_module\n", "line 2: ModuleNotFoundError: No module named 'no_such_module'."),
        ("x = 1\nraise SystemExit\n", "line 2: SystemExit, without a message."),
        ("def f():\n    raise ValueError('It broke.')\nf()\n", "line 2: ValueError: It broke."),
    ],
)
def test_a_plugin_that_fails_is_one_line_with_file_and_line(plugin, code, reason):
    plugin.write_text(code)
    line = refusal("methods", "--plugin", plugin)
    assert line.startswith(f"Plugin '{plugin}', {reason}")
    assert line.endswith(".")


def test_a_plugin_that_is_no_python_file_is_refused(plugin, tmp_path):
    assert refusal("methods", "--plugin", tmp_path) == f"--plugin '{tmp_path}': no such file. Name a Python file."
    (tmp_path / "methods.txt").write_text("")
    line = refusal("methods", "--plugin", tmp_path / "methods.txt")
    assert line == f"--plugin '{tmp_path / 'methods.txt'}' is not a Python file: its name must end in .py."


@pytest.fixture
def installed(plugin, monkeypatch):
    """The same file as an installed package that announces itself."""
    monkeypatch.syspath_prepend(plugin.parent)
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    point = EntryPoint("mine", "my_methods", "whyformer.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [point] if group == point.group else [])
    yield plugin
    sys.modules.pop("my_methods", None)


def test_installed_packages_are_loaded_where_a_command_asks_and_not_before(installed, vit, photo):
    assert "first_block_attention" not in METHODS
    assert json.loads(run("methods", "--json"))[-1]["name"] == "first_block_attention"
    run("explain", photo, "--model", vit, "--method", "first_block_attention")


def test_python_loads_installed_packages_when_asked(installed):
    assert load_plugins(entry_points=False) == ()
    assert "first_block_attention" not in METHODS
    assert load_plugins() == ("mine",)
    assert "first_block_attention" in METHODS


def test_an_installed_plugin_that_fails_is_named_with_its_file(installed):
    installed.write_text("\n1 / 0\n")
    message = rf"^Plugin 'mine' \(my_methods\) of .*, {re.escape(str(installed))}, line 2: ZeroDivisionError"
    with pytest.raises(WhyformerError, match=message):
        load_plugins()


def test_the_schema_of_suites_knows_the_methods_of_a_plugin(plugin):
    assert json.loads(run("schema")) == suite_schema()
    assert "first_block_attention" not in run("schema")
    assert "first_block_attention" in run("schema", "--plugin", plugin)


def test_a_suite_cannot_name_a_plugin(plugin, tmp_path):
    (tmp_path / "suite.toml").write_text(f'plugins = ["{plugin}"]\nmodel = "mini-vit"\n')
    line = refusal("evaluate", tmp_path / "suite.toml", "--out", tmp_path / "out")
    assert "plugins" in line
    assert "first_block_attention" not in METHODS
