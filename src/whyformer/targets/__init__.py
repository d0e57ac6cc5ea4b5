"""Targets: resolve what to explain to a score of the model's output."""
