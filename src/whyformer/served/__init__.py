"""Models that are only served: log-probabilities of given responses, over HTTP."""
