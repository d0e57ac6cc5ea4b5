"""Makes docs/pictures/action.png: the page of the guide's transcript in a browser, its account clicked.

    python docs/action_pictures.py

The action is benchmarks/results/action_example.json, which `whyformer action docs/guides/transcript.json --out FILE`
wrote.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import whyformer

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "benchmarks" / "results" / "action_example.json"
PICTURE = ROOT / "docs" / "pictures" / "action.png"
CLICKED = "account"
WIDTH, HEIGHT = 1280, 840
COLOURS = 128


def main() -> int:
    """Write the picture."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("The picture needs Chromium: install it, or leave the picture as it is.")
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "action.html"
        whyformer.Action.load(EXAMPLE).save(file)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(file.as_uri())
        page.get_by_role("button", name=CLICKED).click()
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        browser.close()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"Written: {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
