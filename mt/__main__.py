"""Runs mt as `python -m mt`."""

import sys

from mt.cli import main

if __name__ == "__main__":
    sys.exit(main())
