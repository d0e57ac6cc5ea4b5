"""Parse the model, the target, the method and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import typer

from whyformer.cli.command_options import DtypeName
from whyformer.cli.console import safe, spinner
from whyformer.errors import WhyformerError

if TYPE_CHECKING:
    from whyformer.methods.registry import Method
    from whyformer.models.loading import LoadedModel
    from whyformer.targets.scores import Target

DEFAULT_NAME = "default"  # the name of the default method
# Introduction below the title of a page that compares methods.
ABOUT_METHODS = (
    "What the answer depends on, with one method per column: a stronger colour means more, and blue is evidence "
    "against the answer. A colour is full at four times the average score of its map, or at more where the text below "
    "it says so. random is noise, for comparison."
)


@dataclass(frozen=True)
class MethodCall:
    """A method with its options for `explain`; None is the default."""

    title: str
    method: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    backward: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"method": self.method, "backward": self.backward, **self.options}


def method_call(name: str | None, options: Sequence[str], backward: str | None) -> MethodCall:
    """The named method with validated options."""
    from whyformer.api.attribute import choose_method

    name = None if name == DEFAULT_NAME else name
    method, _ = choose_method(name, backward)
    return MethodCall(name or DEFAULT_NAME, name, parse_options(method, options), backward)


def response_method_call(name: str | None, options: Sequence[str], backward: str | None) -> MethodCall:
    """The named method of a response with validated options."""
    from whyformer.api.explain_response import choose_response_method

    name = None if name == DEFAULT_NAME else name
    method = choose_response_method(name, backward)
    return MethodCall(name or DEFAULT_NAME, name, parse_options(method, options), backward)


def parse_options(method: Method, texts: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE strings into options of the method."""
    from whyformer.methods.option_checks import check_options

    options = {}
    for text in texts:
        name, value = split_option(text)
        options[name] = _value(method, name, value)
    check_options(method, options)
    return options


def split_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise WhyformerError(f"--option {text!r}: write it as name=value.")
    return name, value


def _value(method: Method, name: str, text: str) -> Any:
    """Parse a number, a switch or none if the option takes one; check_options reports the rest."""
    hint = get_type_hints(method.formula).get(name) or getattr(method, "shared_options", {}).get(name)
    default = method.options[name].default if name in method.options else None
    kinds = {hint, *get_args(hint), type(default)}
    if kinds & {int, float, bool} or (type(None) in kinds and text.lower() == "none"):
        with suppress(ValueError):
            return json.loads({"none": "null"}.get(text.lower(), text.lower()))
    return text


def load_model(name: str, *, device: str | None = None, dtype: DtypeName | None = None, quiet: bool) -> LoadedModel:
    """Load a model by name on a device, in a dtype."""
    from whyformer.models.loading import load
    from whyformer.models.placement import check_device

    place = None if device is None else check_device(device, "--device ")
    with spinner(f"Loading {safe(name)}", quiet=quiet):
        return load(name, device=place, dtype=dtype)


def target_of(text: str, model: LoadedModel) -> str | int:
    """A label's name or index; print a note if a number is read as a token id."""
    from whyformer.targets.resolve import label_from_text

    label = label_from_text(text, model)
    if isinstance(label, int) and model.task.chooses_words and 0 <= label < len(model.tokenizer):
        typer.echo(f"{text} is read as the id of a token: {model.tokenizer.decode([label])!r}.", err=True)
    return label


def parse_question(
    target: str, rather_than: str | None, query: int | None, place: str | None, model: LoadedModel
) -> Target:
    """The target, with a contrast, an object query or a position of the text if given."""
    from whyformer.targets.resolve import place_from_text
    from whyformer.targets.scores import at, contrast, detection

    if query is not None:
        if rather_than is not None:
            raise WhyformerError("--query and --rather-than cannot be combined: leave one out.")
        return detection(query, target_of(target, model))
    label = target_of(target, model)
    question = label if rather_than is None else contrast(label, target_of(rather_than, model))
    return question if place is None else at(place_from_text(place, model), question)
