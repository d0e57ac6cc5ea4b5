"""Start the page."""

from __future__ import annotations

import ctypes
import inspect
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from whyformer.app.folder import own_folder
from whyformer.app.gate import Gate
from whyformer.app.hosts import page_hosts
from whyformer.app.models import model_choice
from whyformer.app.quota import UploadQuota
from whyformer.app.setup import Setup
from whyformer.app.tab_view import PAGE_STYLE, PASTE
from whyformer.app.wiring import build_page

FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
THEME = gr.themes.Default(primary_hue="blue", neutral_hue="zinc", font=FONT, font_mono=MONO).set(
    body_text_color_subdued="*neutral_600",
    body_text_color_subdued_dark="*neutral_400",
    block_info_text_color="*neutral_600",
    block_info_text_color_dark="*neutral_400",
    # Gradio's own blues are too pale to be read on white, and under white.
    color_accent="*primary_700",
    button_primary_background_fill="*primary_700",
    button_primary_background_fill_hover="*primary_800",
    button_primary_background_fill_dark="*primary_700",
    button_primary_background_fill_hover_dark="*primary_800",
)

M_ARENA_MAX, ARENAS = -8, 2  # glibc's number of the setting, and the number of shared pools


def launch(
    setup: Setup,
    *,
    host: str | None = "127.0.0.1",
    port: int | None = 7860,
    share: bool = False,
    allow_hosts: Sequence[str] = (),
    opens_browser: bool = False,
    blocks: bool = True,
) -> Any:
    """Serve the page, on this machine only unless a host is named; None takes host and port from the environment.

    It accepts the machine's host names, and those of proxies in `allow_hosts`.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("GRADIO_TEMP_DIR", str(own_folder() / "visitors"))
    share_memory_pools()
    page = build_page(setup)
    gate = Middleware(
        Gate,
        hosts=page_hosts(host, allow_hosts, share=share),
        limits=setup.limits,
        quota=UploadQuota(setup.limits),
        inputs={number: function.inputs for number, function in page.fns.items()},
    )
    # Missing in early releases of Gradio 6.
    later: dict[str, Any] = {"run_history": False} if "run_history" in inspect.signature(page.launch).parameters else {}
    page.launch(
        server_name=host,
        server_port=port,
        share=share,
        inbrowser=opens_browser,
        prevent_thread_lock=not blocks,
        app_kwargs={"middleware": [gate]},
        max_file_size=setup.limits.file_bytes,
        state_session_capacity=setup.limits.waiting,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        quiet=True,
        show_error=False,
        footer_links=[],
        **later,
        theme=THEME,
        css=PAGE_STYLE,
        js=PASTE,
    )
    return page


def share_memory_pools() -> None:
    """Make threads share memory pools: glibc gives each its own, which keeps the memory of an answer."""
    with suppress(OSError, AttributeError):  # other C libraries have no such pools
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)


def launch_space() -> None:
    """Serve the bundled models on a Space: Gradio reads host and port from the environment."""
    # A Space is public, and only its proxy knows its names.
    launch(Setup(model_choice()), host=None, port=None, allow_hosts=["*"])
