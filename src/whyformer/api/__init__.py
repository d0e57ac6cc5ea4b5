"""The public calls."""
