"""What is explained: models by name, what the package must know of each architecture, where answers are read."""
