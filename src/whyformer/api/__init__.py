"""The calls that tie the package together."""
