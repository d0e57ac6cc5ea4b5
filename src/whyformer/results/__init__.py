"""What is returned: an Explanation of one example, a Continuation of a text, and their files."""
