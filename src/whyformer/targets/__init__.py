"""Targets: scores, and how a label's name becomes one."""
