"""What can go wrong by the user's doing, said in one line."""

from __future__ import annotations


class WhyformerError(ValueError):
    """The input, the target, the options or the model cannot be used as asked; the message says why and the way out."""


class UnsupportedModel(WhyformerError):
    """The model does something the asked-for method cannot follow."""
