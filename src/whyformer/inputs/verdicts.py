"""The verdicts on a sentence of a response: where it came from, or whether it is supported at all."""

from __future__ import annotations

from typing import Literal, get_args

Verdict = Literal["from sources", "from memory", "not supported", "contradicted", "repeats the response", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FAULTS: tuple[Verdict, ...] = ("not supported", "contradicted")  # what fails a check of a log
NOT_CALIBRATED = "not calibrated"
