"""Entry point of ``python -m scsigmoid``."""

import sys

from scsigmoid.cli import main

if __name__ == "__main__":
    sys.exit(main())
