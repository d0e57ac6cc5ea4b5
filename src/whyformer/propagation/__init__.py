"""Backward passes by other rules than the gradient's: relevance propagation and LibraGrad. Knows nothing of attention records."""
