"""A reader, method or protocol of a suite, by name with options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Choice:
    """A reader, method or protocol by its name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name in tables: `bi_token alpha=values`."""
        return " ".join([self.name, *(f"{name}={_written(value)}" for name, value in self.options.items())])

    @property
    def document(self) -> dict[str, Any]:
        """The choice as plain data, as in a suite file."""
        return {"name": self.name, **self.options}


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
