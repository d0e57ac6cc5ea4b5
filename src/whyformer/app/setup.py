"""The settings and visitors of the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from whyformer.app.limits import Limits
from whyformer.app.models import ModelChoice
from whyformer.app.visitors import Visitors


@dataclass(frozen=True)
class Setup:
    """The models, limits and visitors of the page."""

    models: ModelChoice
    limits: Limits = field(default_factory=Limits)
    visitors: Visitors = field(default_factory=Visitors)
