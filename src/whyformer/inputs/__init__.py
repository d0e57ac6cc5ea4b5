"""Examples made into what a model takes."""
