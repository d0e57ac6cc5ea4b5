"""Models to explain: loading by name, facts about each architecture, read-outs."""
