"""The registries that code may add to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whyformer.backward.kinds import OPERATION_KINDS
from whyformer.backward.rules import RULES
from whyformer.benchmark import PROTOCOLS
from whyformer.data.readers import READERS
from whyformer.inputs.modality import known_modalities
from whyformer.methods.registry import METHODS
from whyformer.models.families import FAMILIES

REGISTRIES = (METHODS, PROTOCOLS, READERS, FAMILIES, RULES, OPERATION_KINDS, known_modalities())


@contextmanager
def registries_kept() -> Iterator[None]:
    """Forget at the end what was registered since: examples leave nothing to the tests after them."""
    before = [dict(registry) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, content in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(content)
