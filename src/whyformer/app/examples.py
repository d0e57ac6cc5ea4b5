"""Examples that answer at once, with the bundled models."""

from __future__ import annotations

from whyformer.cli.demo import CAT, POST, REVIEW

__all__ = ["CAT", "DOCUMENTS", "POST", "QUESTION", "REVIEW"]

QUESTION = "Where is the key? Who has the hat?"
DOCUMENTS = """letter: Anna gave the key to Boris. Clara painted the violin green.

diary: Boris went to Rome. The hat is in the box. Hugo left the lamp in Lima.

note: David has the box. Emil works as a tailor."""
