"""`pgm send` whose stream begins at a given sqn.

Run it by `python -m tests.interop.support.wrapping_source SQN FILE --node NAME ...`.
"""

from __future__ import annotations

import functools
import sys

import pgm.net.core_factory
from deploy.cli import main
from pgm.core.source.setup import SourceSetup

if __name__ == "__main__":
    first = int(sys.argv.pop(1))
    vars(pgm.net.core_factory)["SourceSetup"] = functools.partial(SourceSetup, first_sqn=first)
    sys.argv.insert(1, "send")
    main()
