"""The report of a run: tables, charts, a gallery of examples, one page."""
