"""The web page as a Hugging Face Space starts it."""

from whyformer.app.server import launch_space

launch_space()
