"""The kinds of input, a module each: how they are read, encoded, collated, laid out, drawn and stored."""

# In the order in which parts are listed in an explanation.
NAMES = ("text", "audio", "written", "image", "regions", "image_text", "video")
