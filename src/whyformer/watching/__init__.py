"""Watch a model's forward pass: the role of each tensor, and every operation that mixes tokens."""
