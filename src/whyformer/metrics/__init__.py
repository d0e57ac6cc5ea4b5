"""Protocols that measure explanations: pure functions, tensors in, one value per example out.

perturbation   how the answer changes while the input goes, most or least relevant first (with `removal`, `answers`)
segmentation   maps against masks of objects
sources        parts of a prompt against those that a response depends on, and against the model without them
rationale      words against words that people marked
detection      weakly supervised segmentation from a detector
approximation  how true the recursions behind the methods are
sanity, road   controls; `priors` are maps that look at no model
statistics     intervals and paired tests
"""
