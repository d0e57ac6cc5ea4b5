"""Checks every kind of page for accessibility with axe-core, and writes benchmarks/results/axe.json.

npm install --prefix /tmp/axe axe-core
python benchmarks/axe.py /tmp/axe/node_modules/axe-core/axe.min.js
python benchmarks/axe.py --pages build/pages    # only write the pages

Each page is opened at 1280 and at 390 px, light and dark. Errors on its console, a width beyond the window's and a
keyboard that cannot leave it are listed, too. The script is read from that file and put into each page, so no page
loads anything.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Error, Page, sync_playwright

import whyformer
from whyformer.api.audit_reading import read_audit
from whyformer.benchmark import evaluate
from whyformer.models.loading import LoadedModel
from whyformer.models.zoo import ZOO
from whyformer.render.audit_record import audit_record_page
from whyformer.render.html import comparison_page
from whyformer.scenes import example

RESULT = Path(__file__).parent / "results" / "axe.json"
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
REVIEW = "A slow start, but a wonderful film."
DOCUMENTS = ["Anna gave the key to Boris. The key is in Rome.", "Clara painted the violin green."]
ANSWERS = ("The key is in Rome.", "The key is in Oslo.")
FILMS = ["a wonderful film", "a dull film", "it was wonderful from beginning to end", "it was dull to the end"] * 12
FILM_LABELS = ["positive", "negative", "positive", "positive"] * 12
SERIOUS = ("serious", "critical")
START_SECONDS = 120
MOST_STOPS = 300  # of the Tab key on a page


def saved_pages(folder: Path) -> dict[str, Path]:
    """A page of each kind, from bundled models."""
    folder.mkdir(parents=True, exist_ok=True)
    bert, vit = whyformer.load("mini-bert"), whyformer.load("mini-vit")
    results = {
        "picture": whyformer.explain(ZOO / "cat.jpg", vit),
        "text": whyformer.explain(REVIEW, bert),
        "response": whyformer.explain_response("Where is the key?", model="mini-llm", context=DOCUMENTS),
        "support": whyformer.explain_response("Where is the key?", model="mini-llm", context=DOCUMENTS, support=True),
        "words": whyformer.continuation((example(3).image, example(3).question), model="mini-vlm", tokens=8),
        "action": whyformer.Action.load(RESULT.parent / "action_example.json"),
        "survey": whyformer.survey(bert, list(zip(FILMS, FILM_LABELS, strict=True))),
        "diff": whyformer.diff(bert, changed_model(bert), FILMS),
    }
    pages = {name: folder / f"{name}.html" for name in (*results, "comparison", "record", "support-report")}
    for name, result in results.items():
        result.save(pages[name])
    review = results["text"]
    review.save(folder / "film.audit.json")
    pages["record"].write_text(audit_record_page(read_audit(folder / "film.audit.json")))
    other = whyformer.explain(REVIEW, bert, method="rollout")
    pages["comparison"].write_text(comparison_page([[review, other]], ["A review"], ["evidence", "rollout"]))
    log = folder / "log.jsonl"
    rows = [{"question": "Where is the key?", "documents": DOCUMENTS, "answer": answer} for answer in ANSWERS]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command(["support", str(log), "--model", "mini-llm", "--out", str(pages["support-report"])])
    command(["demo", "--out", str(folder / "demo"), "--quiet"])
    run = evaluate(bert, ["a wonderful film", "a dull film"], "rollout", "text_perturbation")
    return pages | {"report": run.report(folder / "report"), "demo": folder / "demo" / "index.html"}


def changed_model(old: LoadedModel) -> LoadedModel:
    """A copy of the model that takes "wonderful" for "dull"."""
    network = copy.deepcopy(old.model)
    wonderful, dull = old.tokenizer(["wonderful", "dull"], add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        network.get_input_embeddings().weight[wonderful] = network.get_input_embeddings().weight[dull]
    return replace(old, model=network)


def command(arguments: Sequence[str]) -> None:
    """Run a command of the package."""
    subprocess.run([sys.executable, "-m", "whyformer", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def served() -> Iterator[str]:
    """The web page in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "whyformer", "app", "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(START_SECONDS):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def findings(browser: Browser, address: str, width: int, scheme: Any, axe: str) -> list[dict[str, Any]]:
    """What is wrong on a page: axe-core's violations, lines on the console, and pixels beyond its width."""
    context = browser.new_context(viewport={"width": width, "height": 900}, bypass_csp=True, color_scheme=scheme)
    page, lines = context.new_page(), list[str]()
    page.on("pageerror", lambda problem: lines.append(str(problem)))
    page.on("console", lambda message: lines.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.wait_for_timeout(6000 if address.startswith("http") else 300)
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    if not address.startswith("http") and not walked(page):
        lines.append("the Tab key never leaves the page")
    beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    context.close()
    problems = [{"rule": "console", "impact": "serious", "elements": 1, "first": line[:160]} for line in lines]
    problems += [{"rule": "wider than the window", "impact": "serious", "elements": 1, "first": f"{beyond} px"}] * (
        beyond > 0
    )
    return problems + [
        {
            "rule": one["id"],
            "impact": one["impact"],
            "elements": len(one["nodes"]),
            "first": re.sub(r"data:[^\"]+", "data:…", one["nodes"][0]["html"])[:160],
        }
        for one in found["violations"]
    ]


def walked(page: Page) -> bool:
    """Whether the Tab key goes through the page and ends."""
    page.evaluate("document.activeElement?.blur(); scrollTo(0, 0)")
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            return True
    return False


def main() -> int:
    if sys.argv[1:2] == ["--pages"] and len(sys.argv) == 3:
        saved_pages(Path(sys.argv[2]))
        return 0
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    axe = Path(sys.argv[1]).read_text(encoding="utf-8")
    version = re.search(r"axe v([\d.]+)", axe)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, served() as app:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        addresses = {name: path.as_uri() for name, path in saved_pages(Path(folder)).items()} | {"app": app}
        for (name, address), width, scheme in product(addresses.items(), WIDTHS, SCHEMES):
            case = f"{name} at {width} px, {scheme}"
            try:
                results[case] = findings(browser, address, width, scheme, axe)
            except Error as error:
                print(f"{case} could not be checked: {error.message.splitlines()[0]}")
                return 1
            print(case, results[case], flush=True)
        browser.close()
    serious = sum(one["impact"] in SERIOUS for page in results.values() for one in page)
    document = {"axe-core": version[1] if version else "unknown", "serious or critical": serious, "pages": results}
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{RESULT.name}: {serious} serious or critical findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
