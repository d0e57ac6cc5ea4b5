"""Backward passes: gradients, relevance and LibraGrad, by rules for each kind of operation, whole or by blocks."""
