"""What happens before the first command does anything: imports, public names, interrupts."""

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whyformer
from whyformer import extend
from whyformer.cli import app
from whyformer.methods.registry import METHODS

HEAVY = {"torch", "transformers", "huggingface_hub", "ray", "pyarrow", "matplotlib"}
# The modules that are loaded when the program ends, on stderr; the arguments of the command follow.
LIST_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from whyformer.cli import main
main()
"""
# The program interrupted at the moment when it imports a module, either plainly or so that the library makes an error
# of its own of it; both happen.
INTERRUPT = """
import os, signal, sys, time
name, swallow = sys.argv.pop(1), sys.argv.pop(1) == "swallow"
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits that it is ignored
class Finder:
    def find_spec(self, wanted, path=None, target=None):
        if wanted == name:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10)
            except KeyboardInterrupt:
                if swallow:
                    raise ImportError("initialization failed") from None
                raise
sys.meta_path.insert(0, Finder())
from whyformer.cli import main
main()
"""


def python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["models"],
        ["models", "--json"],
        ["explain", "--help"],
    ],
    ids=" ".join,
)
def test_what_needs_no_model_starts_without_torch(arguments):
    result = python(LIST_MODULES, *arguments)
    assert result.returncode == 0
    assert result.stdout
    assert not HEAVY & set(json.loads(result.stderr))


def test_importing_the_package_imports_no_library():
    code = "import sys, whyformer; whyformer.WhyformerError; dir(whyformer); print(*sorted(sys.modules))"
    result = python(code)
    assert (result.returncode, result.stderr) == (0, "")
    assert not (HEAVY | {"numpy", "PIL", "rich", "typer"}) & set(result.stdout.split())


MOVED = ["FAMILIES", "READERS", "Attribution", "Family", "Method", "Reads", "Stream", "Trace"]
MOVED += ["head_mean", "load_plugins", "method", "reader", "trace"]


@pytest.mark.parametrize("module", [whyformer, extend], ids=lambda module: module.__name__)
def test_every_public_name_is_there_and_listed(module):
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nonsense'"):
        _ = module.nonsense
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec(f"from {module.__name__} import nonsense")


def test_the_version_is_that_of_the_distribution():
    assert whyformer.__version__ == importlib.metadata.version("whyformer")
    assert "__version__" in dir(whyformer)


def test_a_star_import_gives_every_public_name():
    names = {}
    exec("from whyformer import *", names)
    assert set(whyformer.__all__) == names.keys() - {"__builtins__"}


def test_a_public_name_has_one_home():
    assert not set(whyformer.__all__) & set(extend.__all__)
    assert set(MOVED) <= set(extend.__all__)


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_moved_works_and_says_where_it_is(name):
    value = getattr(extend, name)  # used first, it must not come back to the package itself
    expected = f"^whyformer.{name} will be removed in version 0.4: use whyformer.extend.{name}.$"
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=expected) as warned:
            assert getattr(whyformer, name) is value
        assert warned[0].filename == __file__


PACKAGES = ["whyformer", *(m.name for m in pkgutil.walk_packages(whyformer.__path__, "whyformer.") if m.ispkg)]


def test_no_name_of_a_package_hides_a_module_of_it():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            getattr(module, name)
        for _, name, _ in pkgutil.iter_modules(module.__path__):
            if name not in ("__main__", "triton_kernels"):  # which only a machine with Triton can import
                importlib.import_module(f"{package}.{name}")
                assert getattr(module, name) is sys.modules[f"{package}.{name}"], f"{package}.{name} is two things"


def test_the_command_lists_what_the_registry_has():
    listed = json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)
    assert [document["name"] for document in listed] == list(METHODS)
    assert {document["name"]: list(document["options"]) for document in listed} == {
        name: list(method.options) for name, method in METHODS.items()
    }


def test_an_interrupt_is_met_before_anything_slow_is_imported():
    """What Python and pip's launcher do before is not ours; between them and `main` stands not even `typing`."""
    code = f"import sys; sys.path.insert(0, {str(Path(whyformer.__file__).parents[1])!r}); import whyformer.cli"
    command = [sys.executable, "-S", "-c", f"{code}; print({{'typing', 're', 'importlib'}} & set(sys.modules))"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize("how", ["raise", "swallow"])
@pytest.mark.parametrize("module", ["typer", "torch", "transformers"])
def test_an_interrupt_during_an_import_is_one_line(module, how):
    result = python(INTERRUPT, module, how, "explain", "a film", "--model", "mini-bert")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "whyformer: stopped.\n")
