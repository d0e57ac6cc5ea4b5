"""Metrics of explanations: pure functions of tensors that return one value per example.

perturbation   how the answer changes as the input is removed, most or least relevant first (`removal`, `answers`)
soft_removal   tokens kept at random, with probabilities given by their scores
segmentation   maps compared with masks of objects
sources        scores of a prompt's sources compared with the true ones, and with removing them
rationale      words compared with human rationales
detection      weakly supervised segmentation from a detector
approximation  error of the recursions behind the methods
sanity, road   controls; `priors` are maps that ignore the model
statistics     intervals and paired tests
"""
