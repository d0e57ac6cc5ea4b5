"""Trace one forward pass: its attention records, its read-outs, and how information flows to them."""
