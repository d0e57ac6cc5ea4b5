"""Whyformer tells why a Transformer answered as it did.

The public names are listed in `__init__.pyi` and imported on first use: `import whyformer` loads neither torch nor
transformers.
"""

from __future__ import annotations

# Former names until version 0.4: those that moved to whyformer.extend, and two registries that METHODS took in.
_MOVED = frozenset(
    {
        *("FAMILIES", "READERS", "Attribution", "Family", "Method", "Reads", "Stream", "Trace"),
        *("head_mean", "load_plugins", "method", "reader", "trace"),
    }
)
_REGISTRIES = {
    "ABLATION_METHODS": ("removal_methods", "whyformer.METHODS, those whose kinds have 'function'"),
    "SOURCE_METHODS": ("source_methods", "whyformer.METHODS, those whose kinds are ('response',)"),
}


def __getattr__(name: str) -> object:
    """A public name; the stub is read here, as parsing it takes longer than the rest of `import whyformer`."""
    if name == "__version__":
        from importlib.metadata import version

        return version("whyformer")
    if name in _MOVED or name in _REGISTRIES:
        return _former(name)
    from lazy_loader import attach_stub

    load, _, names = attach_stub(__name__, __file__)
    if name == "__all__":
        return names
    if name not in names:
        raise AttributeError(f"module 'whyformer' has no attribute {name!r}")
    return load(name)


def _former(name: str) -> object:
    """A former name with the meaning that it had."""
    import warnings

    instead = f"whyformer.extend.{name}" if name in _MOVED else _REGISTRIES[name][1]
    message = f"whyformer.{name} will be removed in version 0.4: use {instead}."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    if name in _MOVED:
        from whyformer import extend

        return getattr(extend, name)
    from whyformer.methods import registry

    return getattr(registry, _REGISTRIES[name][0])()


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), "__version__"})
