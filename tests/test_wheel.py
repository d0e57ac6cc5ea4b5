"""The wheel that users install: what is in it, how large it is, and what it says of itself."""

import email
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import whyformer
from whyformer.models.zoo import bundled

ROOT = Path(__file__).parents[1]
MOST_BYTES = 75_000_000
BUILD = "import setuptools.build_meta, sys; setuptools.build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built beside it from links, so that no earlier build gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (folder / name).symlink_to(ROOT / name)
    leave_out = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", copy_function=os.symlink, ignore=leave_out)
    command = [sys.executable, "-W", "error", "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "whyformer"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {f"whyformer/{path.relative_to(package).as_posix()}" for path in files}
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected
    assert {"whyformer/py.typed", "whyformer/api/controls.json", "whyformer/render/templates/page.html.j2"} <= names


@pytest.mark.parametrize("name", bundled())
def test_each_bundled_model_comes_with_its_weights_and_its_licence(wheel, name):
    assert f"whyformer/zoo/{name}/model.safetensors" in wheel.namelist()
    assert "## Licence" in wheel.read(f"whyformer/zoo/{name}/README.md").decode()


def test_the_wheel_is_no_larger_than_it_may_be(wheel):
    assert Path(wheel.filename).stat().st_size <= MOST_BYTES


def test_the_wheel_says_what_it_is(wheel):
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert metadata["Name"] == "whyformer"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert wheel.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"whyformer = whyformer.cli:main" in wheel.read(f"{folder}/entry_points.txt")
    assert metadata["Version"] in (ROOT / "CHANGELOG.md").read_text()
    assert metadata["Version"] in (ROOT / "CITATION.cff").read_text()


def test_the_package_says_its_version():
    assert whyformer.__version__.count(".") == 2
