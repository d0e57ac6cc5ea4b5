"""A model's own forward pass seen: attention records, their gradients, and how information flows through them."""
