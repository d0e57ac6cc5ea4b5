"""Results: explanations of examples, continuations and responses, and their files."""
