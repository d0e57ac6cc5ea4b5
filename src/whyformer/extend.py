"""The names that extensions are written with: methods, architectures, kinds of input, rule sets, protocols and readers.

They are listed in `extend.pyi` and imported on first use, as those of `whyformer` are.
"""

from __future__ import annotations

from lazy_loader import attach_stub

_load, __dir__, __all__ = attach_stub("whyformer", __file__)  # the stub's homes are relative to the package


def __getattr__(name: str) -> object:
    """A public name of this module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import whyformer

    value = globals()[name] = _load(name)
    vars(whyformer).pop(name, None)  # where lazy_loader keeps it, and where it is deprecated
    return value
