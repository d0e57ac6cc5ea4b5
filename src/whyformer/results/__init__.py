"""Results: the Explanation of one example, the Continuation of a text, and their files."""
