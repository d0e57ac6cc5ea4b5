"""Recommend a method for a model and data: methods compete on samples until time or data run out."""
