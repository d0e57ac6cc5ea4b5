"""How the page was started."""

from __future__ import annotations

from dataclasses import dataclass, field

from whyformer.app.limits import Limits
from whyformer.app.models import ModelChoice


@dataclass(frozen=True)
class Setup:
    """The models that the page answers with, and how much it takes."""

    models: ModelChoice
    limits: Limits = field(default_factory=Limits)
