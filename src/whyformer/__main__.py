"""`python -m whyformer`: the command line."""

from whyformer.cli import main

if __name__ == "__main__":
    main()
