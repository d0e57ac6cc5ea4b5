"""Explanations as pictures, pages, terminal text and files."""
