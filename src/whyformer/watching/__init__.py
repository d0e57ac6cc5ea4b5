"""A model's own forward pass seen: what each tensor is, and every operation that mixes tokens."""
