"""Makes docs/pictures/app.png: `whyformer app` in a browser, its first example explained.

python docs/app_picture.py
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from axe import served

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "app.png"
WIDTH, HEIGHT, MARGIN, SHOWN_WIDTH = 1200, 930, 24, 860
SECONDS = 180


def explained(page: Page, address: str) -> Image.Image:
    """The page when its first example is explained and can be downloaded."""
    page.set_default_timeout(1000 * SECONDS)
    page.goto(address)
    page.wait_for_selector(".stage img")
    page.wait_for_selector("button:has-text('↓ JSON'):enabled")
    page.get_by_role("button", name="What if …").wait_for()
    page.evaluate("document.fonts.ready")
    tabs = page.get_by_role("tablist").locator("visible=true").first.bounding_box()
    assert tabs is not None
    left, right = tabs["x"] - MARGIN, tabs["x"] + tabs["width"] + MARGIN
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB").crop((left, MARGIN, right, HEIGHT))


def main() -> int:
    """Write the picture."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("The picture needs Chromium: install it, or leave the picture as it is.")
        return 1
    with served() as address, sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        picture = explained(browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}), address)
        browser.close()
    size = SHOWN_WIDTH, round(picture.height * SHOWN_WIDTH / picture.width)
    small = picture.resize(size, Image.Resampling.LANCZOS)
    small.quantize(256, kmeans=1).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
