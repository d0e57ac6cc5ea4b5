"""Backward passes by other rules than the gradient's: relevance propagation and LibraGrad. Attention is no concern."""
