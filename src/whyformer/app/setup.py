"""How the page was started, and who is on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from whyformer.app.limits import Limits
from whyformer.app.models import ModelChoice
from whyformer.app.visitors import Visitors


@dataclass(frozen=True)
class Setup:
    """The models that the page answers with, how much it takes, and its visitors."""

    models: ModelChoice
    limits: Limits = field(default_factory=Limits)
    visitors: Visitors = field(default_factory=Visitors)
