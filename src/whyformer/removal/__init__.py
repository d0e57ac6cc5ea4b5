"""Parts taken away, and the model asked again: units, subsets of them, what fills their places."""
