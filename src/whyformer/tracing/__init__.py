"""One question put to a model: its attention records, where its answer is read, and how information flows to it."""
