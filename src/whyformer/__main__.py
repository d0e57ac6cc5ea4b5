"""`python -m whyformer`: the command line."""

from whyformer.cli import main

main()
