"""`pgm send` whose stream begins at a sqn of choice: `python -m tests.interop.wrapping_source SQN FILE --node NAME ...`."""

from __future__ import annotations

import functools
import sys

import pgm.net.cores
from deploy.cli import main
from pgm.core.source_setup import SourceSetup

if __name__ == "__main__":
    first = int(sys.argv.pop(1))
    vars(pgm.net.cores)["SourceSetup"] = functools.partial(SourceSetup, first_sqn=first)
    sys.argv.insert(1, "send")
    main()
