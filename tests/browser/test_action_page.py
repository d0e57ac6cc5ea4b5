"""The page of an action in a real browser: an argument is clicked, and the transcript lights up."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from playwright.sync_api import expect, sync_playwright

from commands import invoke
from made_actions import EVIL, QWEN, explained
from whyformer.results.action_schema import ACTION, ACTION_VERSION, read_action

ROOT = Path(__file__).parents[2]
TRANSCRIPT, TEMPLATE = ROOT / "docs" / "guides" / "transcript.json", ROOT / "benchmarks" / "chatml_tools.jinja"

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")
CONTENT = json.dumps([{"from": "Ann", "body": "Hello <b>you</b>."}, {"body": f"I have DE89 here. {EVIL}"}])
COLOURED = re.compile(r"\b(for|against)-\d+\b")


@pytest.fixture(scope="module")
def action():
    one = explained({"send_money": EVIL, "DE89": "DE89", "30": "Pay 30"}, content=CONTENT, ask="Pay 30 now.")
    return replace(one, instead="I have read <i>your</i> mail.")


@pytest.fixture(scope="module")
def page_file(action, tmp_path_factory):
    file = tmp_path_factory.mktemp("action") / "action.html"
    action.save(file)
    return file


@pytest.fixture(scope="module")
def opened(page_file):
    """Opens a page, that of the action by default; no request leaves it, and nothing on it goes wrong."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

        @contextmanager
        def open_page(width=1280, *, scripts=True, file=page_file):
            context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts)
            page, requests, problems = context.new_page(), [], []
            page.on("request", lambda request: requests.append(request.url))
            page.on("pageerror", lambda problem: problems.append(str(problem)))
            page.on("console", lambda message: problems.append(message.text))
            page.goto(file.as_uri())
            yield page
            assert (len(requests), problems) == (1, [])
            context.close()

        yield open_page
        browser.close()


def coloured(page):
    """The texts of the conversation that have a colour."""
    pieces = page.locator("[data-piece]").all()
    return [one.text_content() for one in pieces if COLOURED.search(one.get_attribute("class") or "")]


def test_an_argument_that_is_clicked_lights_up_what_made_it(opened):
    with opened() as page:
        expect(page.locator("h1")).to_have_text(re.compile(r"^send_money: .*\bamount: follows the user$"))
        page.get_by_role("button", name="recipient").click()
        assert coloured(page) == ["I have DE89 here."]
        expect(page.locator(".heading .chip")).to_have_text("driven by a tool result")
        expect(page.locator(".ranked li:visible").first).to_contain_text("I have DE89 here.")
        expect(page.locator("[data-effect=untrusted] small")).to_have_text("+6.0 nats")
        page.get_by_role("button", name="amount").click()
        assert coloured(page) == ["Pay 30 now."]
        expect(page.locator(".heading .chip")).to_have_text("follows the user")
        expect(page.get_by_role("button", name="amount")).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("button", name="recipient")).to_have_attribute("aria-pressed", "false")


def test_a_ranked_source_that_is_clicked_is_pointed_at(opened):
    with opened() as page:
        page.get_by_role("button", name="calling send_money").click()
        first = page.locator(".ranked li:visible").first
        expect(first).to_contain_text(EVIL)
        first.click()
        expect(page.locator(".pointed")).to_have_text(EVIL)
        first.press("Enter")
        expect(page.locator(".pointed")).to_have_count(1)


def test_the_page_says_what_drives_the_call_and_what_would_be_done_without_it(opened):
    with opened() as page:
        expect(page.locator(".verdict .chip")).to_have_text("mixed")  # the amount is the user's
        expect(page.locator(".driven pre")).to_have_text("I have read <i>your</i> mail.")
        expect(page.locator(".said.driver")).to_have_count(1)
        assert page.locator(".said b").count() == 0
        schema = page.locator("details.schema").first
        expect(schema.locator("p")).to_be_hidden()
        schema.locator("summary").click()
        expect(schema.locator("p")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off(opened, width):
    with opened(width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_whole_call_is_shown(opened):
    with opened(scripts=False) as page:
        assert EVIL in coloured(page)


@pytest.fixture(scope="module")
def agent_folder(tmp_path_factory):
    """A folder with a random model whose weights are large enough for effects of many nats, and its tokenizer."""
    folder = tmp_path_factory.mktemp("agent")
    tokenizer = QWEN.tokenizer
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 4096}
    config = transformers.LlamaConfig(**sizes, initializer_range=0.6)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_guides_transcript_is_explained_by_the_command_and_its_arguments_clicked(opened, agent_folder, tmp_path):
    file = tmp_path / "call.html"
    options = ("--model", agent_folder, "--chat-template", TEMPLATE, "--out", file, "--json")
    made = invoke("action", TRANSCRIPT, *options)
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    action = read_action({"format": ACTION, "version": ACTION_VERSION, **document})
    with opened(file=file) as page:
        expect(page.locator(".made-call p")).to_have_text('send_money(account="K-412", coins=900)')
        for name in ("account", "coins"):
            page.get_by_role("button", name=name).click()
            expect(page.locator(".heading q")).to_have_text(name)
            expect(page.locator(".heading .chip")).to_have_text(action.target(name).verdict)
            first = action.top(1, name)[0]
            row = page.locator(".ranked li:visible").first
            expect(row.locator("b")).to_have_text(first.source.name)
            expect(row.locator("small")).to_have_text(f"{first.effect:+.1f} nats")
            row.click()
            pointed = page.locator(".pointed").text_content()
            assert pointed in first.source.text
            assert pointed in coloured(page)
