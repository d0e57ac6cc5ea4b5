"""The wheel that users install, and the sdist beside it: what is in it, how large it is, and what it says of itself."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import whyformer
from whyformer.models.zoo import bundled

ROOT = Path(__file__).parents[1]
MOST_BYTES = 75_000_000
BUILD = "import setuptools.build_meta, sys; setuptools.build_meta.build_{}(sys.argv[1])"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """What this checkout is built from, as links beside it, so that no earlier build gets into it."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (folder / name).symlink_to(ROOT / name)
    leave_out = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", copy_function=os.symlink, ignore=leave_out)
    return folder


def build(kind, folder):
    command = [sys.executable, "-W", "error", "-c", BUILD.format(kind), str(folder)]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def wheel(sources):
    build("wheel", sources)
    (path,) = sources.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist(sources):
    build("sdist", sources)
    (path,) = sources.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        yield archive


def package_files():
    package = ROOT / "src" / "whyformer"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"whyformer/{path.relative_to(package).as_posix()}" for path in files}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert {
        "whyformer/py.typed",
        "whyformer/__init__.pyi",
        "whyformer/extend.pyi",
        "whyformer/api/controls.json",
        "whyformer/render/templates/page.html.j2",
    } <= names


def test_the_sdist_has_what_the_wheel_is_built_from(sdist):
    inside = {member.name.partition("/")[2]: member for member in sdist.getmembers() if not member.isdir()}
    assert all(member.isfile() for member in inside.values())  # no links to this checkout
    written = {"PKG-INFO", "setup.cfg", *(name for name in inside if ".egg-info/" in name)}
    files = {f"src/{name}" for name in package_files()} | {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    assert inside.keys() - written == files
    assert Path(sdist.name).stat().st_size <= MOST_BYTES


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
    address = metadata["Project-URL"].removeprefix("Repository, ")
    links = re.findall(r"\]\(([^)#]+)", metadata.get_payload())
    assert f"{address}/raw/main/docs/pictures/strip.png" in links
    assert f"{address}/blob/main/docs/start/install.md" in links
    assert all(link.startswith("https://") for link in links)
    assert wheel.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"whyformer = whyformer.cli:main" in wheel.read(f"{folder}/entry_points.txt")
    assert metadata["Version"] in (ROOT / "CHANGELOG.md").read_text()
    assert metadata["Version"] in (ROOT / "CITATION.cff").read_text()


def test_the_package_says_its_version():
    assert whyformer.__version__.count(".") == 2
