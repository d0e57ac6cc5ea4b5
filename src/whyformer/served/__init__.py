"""Models that are only served: log-probabilities of given responses, asked over HTTP."""
