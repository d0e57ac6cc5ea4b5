"""Kinds of input, one module each: how to read, encode, collate, lay out, remove, draw and store them."""

# Also the order of parts in an explanation; other modules with a `MODALITY` come after these.
ORDER = ("text", "audio", "written", "image", "regions", "image_text")
