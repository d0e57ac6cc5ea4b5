"""Schema of suite files: validated by pydantic, completed by editors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from whyformer.backward.rules import Backward
from whyformer.benchmark.protocols import PROTOCOLS
from whyformer.benchmark.suite import ALL_METHODS
from whyformer.data.readers import READERS
from whyformer.errors import WhyformerError, nearest
from whyformer.methods.registry import METHODS, source_methods

Natural = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]
LEAST = {"seed": 0, "samples": 1, "shard": 1, "batch": 1}
REQUIRED = ("model", "data", "methods", "protocols")


class NamedEntry(BaseModel):
    """A method or protocol by its name, with its options."""

    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(strict=True)]


class Data(BaseModel):
    """The reader of the data by its name, with its options."""

    model_config = ConfigDict(extra="allow")
    reader: Annotated[str, Field(strict=True)]


class SuiteDocument(BaseModel):
    """A suite file: a model, data, methods and protocols to measure."""

    model_config = ConfigDict(extra="forbid", title="A Whyformer suite")
    model: Annotated[str, Field(strict=True, min_length=1, description="A bundled model, a folder or an id.")]
    data: Annotated[Data, Field(description="The reader of the data, and its options.")]
    methods: Annotated[
        str | list[str | NamedEntry], Field(min_length=1, description='Names, tables of them, or "all".')
    ]
    protocols: Annotated[
        str | list[str | NamedEntry], Field(min_length=1, description="Names, or tables with options.")
    ]
    labels: Annotated[dict[str, str] | str, Field(description="The model's names for the labels of the data.")] = {}
    seed: Annotated[Natural, Field(description="Draws the samples.")] = 0
    samples: Annotated[Positive | None, Field(description="The number of samples drawn; by default all.")] = None
    shard: Annotated[Positive, Field(description="The number of samples measured together, one file each.")] = 32
    batch: Annotated[Positive, Field(description="The number of inputs that run at once.")] = 64


def check_document(document: Any) -> SuiteDocument:
    """Validate a document; raise the first error as one line."""
    try:
        return SuiteDocument.model_validate(document)
    except ValidationError as error:
        errors = error.errors()
        first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
        # A value with several accepted forms has an error for each: the longest path names the wrong entry.
        alike = [one for one in errors if one["loc"][:1] == first["loc"][:1]]
        raise WhyformerError(_message(document, max(alike, key=lambda one: len(one["loc"])))) from error


def _message(document: Any, error: Any) -> str:
    place = error["loc"]
    if not place:
        return f"A suite is a table of keys and values, not {document!r:.60}."
    key = str(place[0])
    if error["type"] == "extra_forbidden":
        return f"A suite has no {key!r}. {nearest(key, list(SuiteDocument.model_fields))}"
    value = document.get(key)
    if (error["type"] == "missing" and len(place) == 1) or (value in (None, "", [], {}) and key in REQUIRED):
        return f"The suite names no {key}."
    if key in LEAST:
        return f"{key} = {value!r}: a whole number, {LEAST[key]} or more."
    if key == "model":
        return f"model = {value!r}: name one, or its folder."
    if key == "labels":
        return "labels must be a table: a label of the data = the model's name for it."
    if key == "data":
        return f"data names its reader: one of {', '.join(READERS)}."
    numbers = [part for part in place if isinstance(part, int)]
    if not numbers:
        return f"{key} must be a list of names, or of tables with a name and options."
    kind = key.removesuffix("s")
    return f"A {kind} is its name, or a table with its name and options, not {value[numbers[0]]!r:.60}."


def make_schema() -> dict[str, Any]:
    """The JSON schema of suite files, with the names and options of all methods, readers and protocols."""
    schema = SuiteDocument.model_json_schema()
    known = {name: method for name, method in METHODS.items() if name not in source_methods()}
    methods = [_entry("name", name, one.formula, one.summary, left_out=1) for name, one in known.items()]
    for entry, method in zip(methods, known.values(), strict=True):
        shared = {"backward": Backward, **method.shared_options}
        entry["properties"] |= {name: TypeAdapter(values).json_schema() for name, values in shared.items()}
    protocols = [_entry("name", name, one.measure, one.summary, left_out=1) for name, one in PROTOCOLS.items()]
    for key, names, entries in (("methods", [ALL_METHODS, *known], methods), ("protocols", [*PROTOCOLS], protocols)):
        items = {"anyOf": [{"enum": names}, *entries]}
        described = {"description": schema["properties"][key]["description"]}
        one_or_more = [{"enum": names}, {"type": "array", "minItems": 1, "items": items}]
        schema["properties"][key] = described | {"anyOf": one_or_more}
    readers = [_entry("reader", name, one, inspect.getdoc(one) or "", left_out=0) for name, one in READERS.items()]
    schema["properties"]["data"] = {"anyOf": readers}
    schema.pop("$defs", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def _entry(key: str, name: str, function: Callable[..., Any], summary: str, *, left_out: int) -> dict[str, Any]:
    """The schema of a method, reader or protocol: its name, and its options by its signature."""
    parameters = list(inspect.signature(function).parameters.values())[left_out:]
    hints = get_type_hints(function)
    options = {parameter.name: _value(hints.get(parameter.name, Any), parameter) for parameter in parameters}
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    return {
        "type": "object",
        "description": summary.partition("\n")[0],
        "properties": {key: {"const": name}, **options},
        "required": [key, *needed],
        "additionalProperties": False,
    }


def _value(hint: Any, parameter: inspect.Parameter) -> dict[str, Any]:
    """Schema of an option's value; anything if JSON has no type for it, as for tensors."""
    try:
        schema = TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        schema = {}
    is_plain = isinstance(parameter.default, (bool, int, float, str))
    return schema | ({"default": parameter.default} if is_plain else {})
