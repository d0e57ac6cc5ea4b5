"""Surveys: the cues that drive a model over a data set, proofs by removal, failures, one report."""
