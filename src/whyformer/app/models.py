"""The models of the page: the bundled ones and those named at the start, or any if enabled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Literal, get_args

from whyformer.errors import WhyformerError
from whyformer.inputs.modality import known_modalities
from whyformer.models.loading import LoadedModel, load
from whyformer.models.task import Task
from whyformer.models.zoo import bundled, bundled_folder, model_card

Tab = Literal["Picture", "Text", "Response", "Picture + text", "Detection"]
MOST_KEPT = 16  # models in memory: the bundled ones, and a few others
# The first model of a tab, if it is not the first by name.
FIRST_MODELS: dict[Tab, str] = {"Picture": "mini-vit", "Response": "mini-llm"}
_TABS: dict[str, Tab] = {
    "labels a picture": "Picture",
    "labels a text": "Text",
    "writes the next word": "Response",
    "writes about a text": "Response",
    "compares a picture with a text": "Picture + text",
    "answers a question about regions of a picture": "Picture + text",
    "writes about a picture": "Picture + text",
    "finds objects in a picture": "Detection",
}
_LOADING = Lock()  # load a model only once for concurrent visitors


@dataclass(frozen=True)
class ModelChoice:
    """The models of the page.

    Attributes:
        names: The offered names, by tab.
        takes_any: Whether visitors may name other models.
    """

    names: dict[Tab, list[str]] = field(default_factory=dict)
    takes_any: bool = False

    def name(self, name: str | None, *tabs: Tab) -> str:
        """The chosen name, by default the first of the tabs; raise if it is not offered."""
        offered = [one for tab in tabs for one in self.names[tab]]
        text = (name or "").strip() or offered[0]
        if not self.takes_any and text not in offered:
            raise WhyformerError(f"This tab does not offer the model {text!r}, but {', '.join(offered)}.")
        return text

    def open(self, name: str | None, *tabs: Tab) -> LoadedModel:
        """The model of this name, loaded once for all visitors; raise if it does not belong to the tabs."""
        text = self.name(name, *tabs)
        loaded_model = open_model(text)
        own = tab_of(loaded_model.task)
        if own not in tabs:
            place = f"use the tab {own}" if own else "the page has no tab for it"
            raise WhyformerError(f"{text} {_doing(loaded_model.task)}: {place}, or choose another model.")
        return loaded_model


def model_choice(names: Sequence[str] = (), *, takes_any: bool = False) -> ModelChoice:
    """The bundled models, after those named at the start."""
    by_tab: dict[Tab, list[str]] = {tab: [] for tab in get_args(Tab)}
    for name in dict.fromkeys(names):
        task = open_model(name).task
        tab = tab_of(task)
        if tab is None:
            raise WhyformerError(f"{name} {_doing(task)}, and the page has no tab for that.")
        by_tab[tab].append(name)
    for name in bundled():
        tab = _TABS[model_card(bundled_folder(name))["task"]]
        if name not in by_tab[tab]:
            by_tab[tab].append(name)
    for tab, first in FIRST_MODELS.items():
        if first not in names:
            rest = [name for name in by_tab[tab] if name != first]
            named = [name for name in rest if name in names]
            by_tab[tab] = [*named, first, *(name for name in rest if name not in names)]
    return ModelChoice(by_tab, takes_any)


def open_model(name: str) -> LoadedModel:
    """Load the model on first use."""
    with _LOADING:
        return _kept(name)


@lru_cache(maxsize=MOST_KEPT)
def _kept(name: str) -> LoadedModel:
    return load(name)


def forget_models() -> None:
    """Reload every model on next use."""
    with _LOADING:
        _kept.cache_clear()


def tab_of(task: Task) -> Tab | None:
    """The tab for models with this task; None if no tab has its inputs."""
    if task.reads_other_files:
        return None
    if task.sees is not None and (task.reads_text or task.sees_regions or task.sees_pictures_in_text):
        return "Picture + text" if task.answer != "detection" else None
    if task.sees_pictures:
        return {"label": "Picture", "labels": "Picture", "detection": "Detection"}.get(task.answer)  # type: ignore[return-value]
    if task.writes:
        return "Response"
    return "Text" if task.answer in ("label", "labels") else None


def _doing(task: Task) -> str:
    """Describe a model's input and output."""
    kinds = known_modalities()[task.modality].files.plural if task.sees is None else "pictures"
    if task.sees is not None and task.reads_text:
        kinds = "pictures and texts"
    return f"takes {kinds} and answers with {task.description}"
