"""The long description for a package index: README.md with its relative links made absolute."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def linked(text: str, repository: str) -> str:
    """The text with relative links to files of the repository, and pictures as raw files."""

    def absolute(match: re.Match[str]) -> str:
        place = "raw" if match["picture"] else "blob"
        return f"{match['picture']}[{match['text']}]({repository}/{place}/main/{match['path']})"

    return re.sub(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)", absolute, text)


README = (ROOT / "README.md").read_text(encoding="utf-8")
setup(long_description=linked(README, PROJECT["urls"]["Repository"]), long_description_content_type="text/markdown")
