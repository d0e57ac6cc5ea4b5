"""`whyformer mcp`: the tools for agents over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.errors import WhyformerError
from whyformer.extras import extra

INSTRUCTIONS = (
    "Explain why a Transformer gave its answer. Call models first; explain takes texts and pictures, explain_response "
    "replies from documents, support judges each sentence of an answer, and doctor checks a model that is new to you."
)
Folders = Annotated[
    list[Path] | None,
    typer.Option("--folder", metavar="PATH", help="A folder whose files the agent may read; can be repeated."),
]
NamedModels = Annotated[
    list[str] | None,
    typer.Option("--model", help="A folder or a Hugging Face id to offer with the bundled models; can be repeated."),
]


def mcp_command(folder: Folders = None, model: NamedModels = None) -> None:
    """Serve tools to an agent over MCP, on standard input and output: explain, explain_response, support and more."""
    server(folder or (), model or ()).run("stdio")


def server(folders: Any = (), models: Any = ()) -> Any:
    """The MCP server with its five tools."""
    mcpserver = extra("mcp.server.mcpserver", "mcp")
    from whyformer.cli.agent_tools import AgentTools
    from whyformer.models.zoo import bundled

    if missing := [str(folder) for folder in folders if not Path(folder).is_dir()]:
        raise WhyformerError(f"--folder {missing[0]!r} is not a folder.")
    tools = AgentTools(tuple(Path(folder).resolve() for folder in folders), tuple(dict.fromkeys([*bundled(), *models])))
    mcp_server = mcpserver.MCPServer(
        "whyformer", instructions=INSTRUCTIONS, version=version("whyformer"), log_level="ERROR"
    )
    for tool in (tools.explain, tools.explain_response, tools.support, tools.doctor, tools.models):
        mcp_server.add_tool(_reported(tool, mcpserver.exceptions.ToolError))
    return mcp_server


def _reported(tool: Callable[..., Any], failure: type[Exception]) -> Callable[..., Any]:
    """The tool with errors of the package as the one line that an agent reads."""

    @functools.wraps(tool)
    def run(*args: Any, **options: Any) -> Any:
        try:
            return tool(*args, **options)
        except (WhyformerError, OSError) as error:
            raise failure(str(error)) from error

    return run
