"""Remove parts of an input and run the model again: units, subsets, fills."""
