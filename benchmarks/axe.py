"""Checks saved pages and the web page for accessibility with axe-core, and writes benchmarks/results/axe.json.

npm install --prefix /tmp/axe axe-core
python benchmarks/axe.py /tmp/axe/node_modules/axe-core/axe.min.js

The script is read from that file and put into each page, so that no page asks for anything from outside.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Page, sync_playwright

import whyformer
from whyformer.api.audit_reading import read_audit
from whyformer.benchmark import evaluate
from whyformer.models.zoo import ZOO
from whyformer.render.audit_record import audit_record_page
from whyformer.render.html import comparison_page

RESULT = Path(__file__).parent / "results" / "axe.json"
WIDTHS = (1280, 390)
DOCUMENTS = ["Anna gave the key to Boris. The key is in Rome.", "Clara painted the violin green."]
SERIOUS = ("serious", "critical")
START_SECONDS = 120


def saved_pages(folder: Path) -> dict[str, Path]:
    """A page of each kind, from bundled models."""
    pages = {name: folder / f"{name}.html" for name in ("picture", "text", "comparison", "response", "record")}
    whyformer.explain(ZOO / "cat.jpg", "mini-vit", method="rollout").save(pages["picture"])
    review = whyformer.explain("A slow start, but a wonderful film.", "mini-bert")
    review.save(pages["text"])
    review.save(folder / "film.audit.json")
    pages["record"].write_text(audit_record_page(read_audit(folder / "film.audit.json")))
    other = whyformer.explain("A slow start, but a wonderful film.", "mini-bert", method="rollout")
    pages["comparison"].write_text(comparison_page([[review, other]], ["A review"], ["evidence", "rollout"]))
    whyformer.explain_response("Where is the key?", model="mini-llm", context=DOCUMENTS).save(pages["response"])
    run = evaluate("mini-bert", ["a wonderful film", "a dull film"], "rollout", "text_perturbation")
    return pages | {"report": run.report(folder / "report")}


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


def findings(browser: Browser, address: str, width: int, axe: str) -> list[dict[str, Any]]:
    """The violations that axe-core names on a page: rule, impact, and how many elements."""
    context = browser.new_context(viewport={"width": width, "height": 900}, bypass_csp=True)
    page: Page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(6000 if address.startswith("http") else 300)
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    context.close()
    return [
        {
            "rule": one["id"],
            "impact": one["impact"],
            "elements": len(one["nodes"]),
            "first": re.sub(r"data:[^\"]+", "data:…", one["nodes"][0]["html"])[:160],
        }
        for one in found["violations"]
    ]


def main() -> int:
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
        for name, address in addresses.items():
            for width in WIDTHS:
                try:
                    results[f"{name} at {width} px"] = findings(browser, address, width, axe)
                except Error as error:
                    print(f"{name} at {width} px could not be checked: {error.message.splitlines()[0]}")
                    return 1
                print(name, width, results[f"{name} at {width} px"], flush=True)
        browser.close()
    serious = sum(one["impact"] in SERIOUS for page in results.values() for one in page)
    document = {"axe-core": version[1] if version else "unknown", "serious or critical": serious, "pages": results}
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{RESULT.name}: {serious} serious or critical findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
