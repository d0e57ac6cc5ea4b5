"""`whyformer mcp`: five tools over standard input and output, which reach no file and no model that was not named."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver.exceptions import ToolError
from PIL import Image

from commands import refusal
from whyformer import explain
from whyformer.cli import agent_tools
from whyformer.cli.agent_tools import AgentTools, contained
from whyformer.cli.mcp_command import server
from whyformer.errors import WhyformerError
from whyformer.models.zoo import ZOO, bundled

QUESTION, DOCUMENTS = "Where is the key?", ["Anna gave the key to Boris.", "Boris went to Rome."]


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "cat.jpg").write_bytes((ZOO / "cat.jpg").read_bytes())
    (inside / "anna.txt").write_text("Anna gave the key to Boris.")
    (tmp_path / "secret.txt").write_text("A secret.")
    return inside.resolve()


@pytest.fixture
def tools(folder):
    return AgentTools((folder,), tuple(bundled()))


def test_a_client_finds_the_tools_and_gets_the_scores_that_explain_gives(folder):
    async def ask():
        settings = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "whyformer", "mcp", "--folder", str(folder)], env=os.environ | settings
        )
        async with Client(command) as client:
            listed = await client.list_tools()
            result = await client.call_tool("explain", {"model": "mini-bert", "text": "A wonderful film.", "top": 1})
            refused = await client.call_tool("explain", {"model": "mini-bert", "file": "../secret.txt"})
        return listed, result, refused

    listed, result, refused = asyncio.run(ask())
    assert {tool.name for tool in listed.tools} == {"explain", "explain_response", "support", "doctor", "models"}
    assert all(tool.description for tool in listed.tools)
    expected = explain("A wonderful film.", "mini-bert")
    (top,) = result.structured_content["top"]
    assert (top["text"], result.structured_content["target"]) == ("wonderful", "positive")
    assert top["score"] == pytest.approx(expected.top(1)[0].score, rel=1e-4)
    assert refused.is_error
    assert "No file '../secret.txt' in the server's folders" in refused.content[0].text


@pytest.mark.parametrize("name", ["../secret.txt", "{parent}/secret.txt", "link.txt", "missing.txt", ".", "a\0b", ""])
def test_a_file_outside_the_folders_is_answered_like_a_missing_one(folder, name):
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    with pytest.raises(WhyformerError, match=r"No file .* in the server's folders"):
        contained([folder], name.replace("{parent}", str(folder.parent)))


def test_without_a_folder_no_file_is_read(folder):
    with pytest.raises(WhyformerError, match=r"none was named: start the server with --folder"):
        contained([], str(folder / "anna.txt"))


def test_a_text_that_names_a_file_is_a_text(tools, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert (
        tools.explain("mini-bert", text="anna.txt", top=50)["top"] != tools.explain("mini-bert", file="anna.txt")["top"]
    )


def test_pictures_and_texts_are_read_from_a_folder(tools):
    found = tools.explain("mini-vit", file="cat.jpg", top=2)
    assert (found["target"], len(found["top"])) == ("cat", 2)
    assert found["patches"] == {"image": "16 rows, 16 columns"}
    assert tools.read("anna.txt") == "Anna gave the key to Boris."


def test_sizes_are_bounded_before_anything_is_decoded(tools, folder, monkeypatch):
    monkeypatch.setattr(agent_tools, "MOST_FILE_PIXELS", 100)
    Image.new("RGB", (20, 20)).save(folder / "large.png")
    with pytest.raises(WhyformerError, match=r"'large\.png' has 20 × 20 pixels, more than 100: shrink it\."):
        tools.read("large.png")
    monkeypatch.setattr(agent_tools, "MOST_FILE_BYTES", 10)
    with pytest.raises(WhyformerError, match=r"choose a smaller one\."):
        tools.read("anna.txt")
    with pytest.raises(WhyformerError, match=r"The texts have 20,001 characters, more than 20,000: shorten them\."):
        tools.explain("mini-bert", text="a" * 20_001)
    with pytest.raises(WhyformerError, match=r"At most 20 documents are read at once: leave some out\."):
        tools.support(QUESTION, "Rome.", documents=["a"] * 21)
    with pytest.raises(WhyformerError, match=r"tokens is from 1 to 64, not 65\."):
        tools.explain_response(QUESTION, DOCUMENTS, tokens=65)
    with pytest.raises(WhyformerError, match=r"top is from 1 to 50, not 0\."):
        tools.explain("mini-bert", text="A film.", top=0)


def test_a_file_that_is_neither_picture_nor_text_is_refused(tools, folder):
    (folder / "weights.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WhyformerError, match=r"'weights\.bin' is neither a picture nor a text in UTF-8\."):
        tools.read("weights.bin")
    with pytest.raises(WhyformerError, match=r"'cat\.jpg' is a picture: documents are texts\."):
        tools.support(QUESTION, "Rome.", files=["cat.jpg"])


def test_only_offered_models_are_loaded(tools, folder):
    with pytest.raises(WhyformerError, match=r"No model '/etc' is offered\. Choose one of mini-"):
        tools.doctor("/etc")
    assert tools.models()["models"].keys() == set(bundled())
    own = asyncio.run(server([folder], ["./my-model"]).call_tool("models", {}))
    assert own.structured_content["models"]["./my-model"] == "named when the server was started"


def test_errors_reach_the_agent_as_one_line(folder):
    with pytest.raises(ToolError, match=r"No model 'gpt' is offered\. Choose one of mini-"):
        asyncio.run(server([folder]).call_tool("doctor", {"model": "gpt"}))


def test_a_reply_is_traced_and_judged_with_documents_from_files(tools):
    traced = tools.explain_response(QUESTION, [DOCUMENTS[1]], ["anna.txt"], " In Rome.")
    assert {source["text"].strip() for source in traced["rows"][0]["sources"]} <= {QUESTION, *DOCUMENTS}
    judged = tools.support(QUESTION, "In Rome.", [DOCUMENTS[1]], ["anna.txt"])
    assert [sentence["text"].strip() for sentence in judged["sentences"]] == ["In Rome."]
    assert judged["sentences"][0]["verdict"]


def test_a_folder_that_is_none_is_refused_at_the_start():
    assert refusal("mcp", "--folder", "nowhere") == "--folder 'nowhere' is not a folder."


def test_the_guide_says_the_limits():
    text = (Path(__file__).parents[2] / "docs" / "guides" / "agents.md").read_text()
    for limit in (
        f"{agent_tools.MOST_FILE_BYTES >> 20} MB",
        f"{agent_tools.MOST_FILE_PIXELS // 10**6} million pixels",
        f"{agent_tools.MOST_TEXT_CHARACTERS:,} characters",
        f"{agent_tools.MOST_DOCUMENTS} documents",
        f"at most {agent_tools.MOST_WRITTEN} tokens",
        f"at most {agent_tools.MOST_LISTED} items",
    ):
        assert limit in text
