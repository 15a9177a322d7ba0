"""python -m tests.explore: see `tests.explore.command`."""

import sys

from tests.explore.command import main

if __name__ == "__main__":
    sys.exit(main())
