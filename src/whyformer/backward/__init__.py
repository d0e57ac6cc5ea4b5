"""The way back: gradients, relevance and LibraGrad by rules for each kind of operation, whole or block by block."""
