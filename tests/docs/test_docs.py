"""README and docs: their code runs, and their tables are those the committed results make."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import drawings
import numpy as np
import pictures
import pytest
import tables
from method_pages import legend, letters
from PIL import Image

from app_soak import Outcome, figures
from commands import invoke
from registries import registries_kept
from whyformer.methods.registry import removal_methods
from whyformer.models.zoo import ZOO
from whyformer.scenes import example

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SKILL.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    with registries_kept():
        for block in blocks_of(page, "python"):
            exec(compile(block, page.name, "exec"), namespace)


# What is not run of the whyformer commands on the pages, by how it begins, and why.
NOT_RUN = {
    "whyformer app": "It serves until it is stopped; tests/browser starts it.",
    "whyformer evaluate benchmarks/suites/quick.toml": "It takes minutes.",
    "whyformer report results/quick": "It reads what takes minutes.",
    "whyformer evaluate benchmarks/suites/vit-segmentation.toml": "It needs data that are not bundled.",
    "whyformer evaluate benchmarks/suites/real-smollm2.toml": "It needs a model that is not bundled, and hours.",
    "whyformer evaluate $SUITE": "It needs data that are not bundled, and hours.",
    "RAY_ADDRESS=auto whyformer evaluate SUITE.toml": "It needs a cluster, and data that are not bundled.",
    "RAY_ADDRESS=auto whyformer survey MODEL": "It needs a cluster.",
    "whyformer recommend": "It takes minutes.",
    "whyformer response --sound speech.wav --model openai/whisper-tiny": "It needs the hub.",
}


def blocks_of(page: Path, language: str) -> list[str]:
    return re.findall(rf"```(?:{language})\n(.*?)```", page.read_text(), re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """The whyformer commands of a page, each on one line."""
    lines = (line.strip() for block in blocks_of(page, "sh|bash") for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if re.search(r"\bwhyformer [a-z]", line.partition("#")[0])]


RUN = {page: [line for line in commands_of(page) if not line.startswith(tuple(NOT_RUN))] for page in PAGES}


@pytest.fixture
def readers_folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    for name in ("photo.jpg", "elsewhere/photo.jpg", "photos/one.jpg", "photos/two.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ZOO / "cat.jpg").read_bytes())
    example(3).image.save(tmp_path / "scene.png")
    (tmp_path / "my-model").symlink_to(ZOO / "mini-llm")
    suite = """
        model = "mini-bert"
        methods = ["first_block_attention"]
        protocols = ["text_perturbation"]
        data = {reader = "labelled_lines", path = "films.tsv"}
    """
    texts = {
        "review.txt": "A slow story, but the music is great.",
        "reviews.txt": "A wonderful film.\nA dull film.\n",
        "reviews.csv": 'review,label\n"A wonderful film, really.",positive\nA dull film.,negative\n',
        "weather.txt": "It rained all day.",
        "chat.json": json.dumps([{"role": "user", "content": "Where is the key? Anna has the key."}]),
        "log.jsonl": json.dumps({"prompt": "The film was", "response": " dull"}) + "\n",
        "films.tsv": "positive\tA wonderful film.\nnegative\tA dull film.\n",
        "my_suite.toml": suite,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", [page for page, lines in RUN.items() if lines], ids=name_of)
def test_the_commands_of_a_page_run_from_top_to_bottom(page, readers_folder):
    if page.name in ("plugins.md", "picture.md"):  # whose first block writes the plugin, or the picture
        exec(compile(blocks_of(page, "python")[0], page.name, "exec"), {})
    with registries_kept():
        for line in RUN[page]:
            before, _, own = line.rpartition(" | ")
            typed = Path(before.removeprefix("cat ")).read_text() if before else None
            _, *arguments = shlex.split(own, comments=True)
            result = invoke(*arguments, input=typed)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            if "--out" in arguments:
                assert Path(arguments[arguments.index("--out") + 1]).exists(), line


def test_what_is_not_run_is_on_a_page():
    lines = [line for page in PAGES for line in commands_of(page)]
    assert not [beginning for beginning in NOT_RUN if not any(line.startswith(beginning) for line in lines)]


def test_tables_are_made_from_the_committed_results(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert tables.main() == 0, capsys.readouterr().out


def test_what_is_told_of_the_page_under_load_is_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.soak() == "Not measured yet."
    outcomes = [Outcome("Text", number != 7, number / 10, 900.0 + number) for number in range(100)]
    (tmp_path / "app_soak.json").write_text(json.dumps(figures(outcomes, clients=8, warm_up=50)))
    table = tables.soak()
    assert table.startswith(f"| 100 requests, 8 visitors at once, {len(os.sched_getaffinity(0))} cores |")
    assert "| hostile among them | 0 |" in table
    assert "| failures: honest requests not answered, hostile ones not refused | 1 |" in table
    assert "| 95 of 100 answers within | 9.5 s |" in table
    assert "| memory at the end | 999 MB |" in table
    growth = (900 + 87) / (900 + 62) - 1  # the middles of the last 25 and of the first 25 after the warm-up
    assert f"| growth of memory after the first 50 requests | +{growth:.1%} |" in table


def test_links_between_pages_lead_somewhere():
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())]
    broken = [f"{page.name} links to {target}" for page, target in links if not (page.parent / target).exists()]
    assert not broken, "\n".join(broken)


PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())
SLOW_PICTURES = {f"method-{name}" for name in removal_methods()}  # hundreds of forward passes each


def test_a_picture_is_small_and_shown_somewhere():
    text = "\n".join(page.read_text() for page in PAGES)
    most = {"looks.jpg": 350_000}  # a sheet of twelve photographs
    assert not [picture.name for picture in PICTURES if picture.stat().st_size > most.get(picture.name, 200_000)]
    assert not [picture.name for picture in PICTURES if picture.name not in text]


@pytest.mark.parametrize("name", [name for name in pictures.MADE if name not in SLOW_PICTURES])
def test_a_picture_shows_what_is_computed_now(name):
    drawn, kept = (
        np.asarray(picture.convert("RGB")).astype(int)
        for picture in (pictures.MADE[name](), Image.open(ROOT / "docs" / "pictures" / f"{name}.png"))
    )
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).max(axis=2).mean() < 2  # of 255: 256 colours are kept of each picture


def test_the_strip_shows_sources_that_count_and_the_star_in_the_colour_that_is_told():
    response = pictures.explained_response(None)
    shown = [pictures.first_sources(response, row, pictures.LEAST_SHARE) for row in range(2)]
    assert [[item.source.text.strip() for item in items] for items in shown] == [
        ["Boris went to Rome."],
        ["David has the box."],
    ]
    strip = np.asarray(Image.open(ROOT / "docs" / "pictures" / "strip.png").convert("RGB")).astype(int)
    cyan = (58, 192, 212)  # of the star, as the scene has it
    assert (np.abs(strip - cyan).max(axis=2) < 16).sum() > 100


def test_the_legend_of_a_formula_has_its_letters_and_no_others():
    assert letters(r"\bar A = \mathbb{E}_h \left( \frac{\partial y}{\partial A_{j}} \right)^{+} \mathrm{mean}") == [
        *"𝔼hyAj⁺",
    ]
    assert letters(r"\int_0^1 f(\tau x) \, d\tau + e^{-\lambda}") == ["f", "τ", "x", "λ"]
    text = {"formula": ["s = q(P)"], "where": {"q": "a share", "P": "perception"}}
    assert legend("m", text).startswith("q: a share; P: perception; s: the scores. [")
    with pytest.raises(SystemExit, match=r"m: where does not say what q stands for\."):
        legend("m", {"formula": ["s = q(A)"]})
    with pytest.raises(SystemExit, match=r"m: no q in the formula\."):
        legend("m", {"formula": ["s = r A"], "where": {"q": "a share"}})


def test_the_page_of_a_method_has_its_options_with_their_defaults():
    missing = [
        f"{name}: {option}={parameter.default!r}"
        for name, method in pictures.METHODS.items()
        for option, parameter in method.options.items()
        if f"| `{option}` | `{parameter.default!r}` |" not in (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_is_what_its_function_draws(name):
    assert (ROOT / "docs" / "pictures" / f"concept-{name}.svg").read_text() == drawings.svg(drawings.DRAWINGS[name])


def test_first_words_of_readme_need_no_paper():
    first_screen = (ROOT / "README.md").read_text().partition("## Two commands")[0]
    for word in ("TA", "BI", "GA", "read-out", "stream", "libra", "LRP", "rollout"):
        assert not re.search(rf"\b{word}\b", first_screen.replace("LRP-eXplains-Transformers", "")), word


def test_readme_says_what_a_word_of_ours_is_before_it_uses_it():
    text = (ROOT / "README.md").read_text()
    assert not re.search(r"\b(TA|BI|GA)\b", text)
    explanations = {
        "read-?out": "read-out. A read-out says where the answer is read",
        "stream": "stream. A stream is a named row of tokens, such as the words or the patches",
        "libra\\b": 'its rules for gradients: `backward="libra"`',
    }
    for word, explanation in explanations.items():
        first = re.search(word, text)
        assert text.index(explanation) <= first.start() < text.index(explanation) + len(explanation), word
