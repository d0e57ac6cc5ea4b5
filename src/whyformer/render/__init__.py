"""Render results as pictures, HTML pages and terminal text."""
