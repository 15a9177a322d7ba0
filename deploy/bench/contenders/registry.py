"""All contenders, in the order in which they run and are shown."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from deploy.bench.contender import Contender
from deploy.bench.contenders.files import FILE_CONTENDERS
from deploy.bench.contenders.openpgm import OPENPGM
from deploy.bench.contenders.ours import OURS
from deploy.bench.contenders.raw import RAW
from deploy.bench.contenders.zeromq import ZEROMQ
from pgm.errors import UsageError

CONTENDERS: tuple[Contender, ...] = (*OURS, *RAW, *OPENPGM, *ZEROMQ)


def require_known(names: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is no contender's, file contenders included."""
    known = {contender.name for contender in CONTENDERS} | {contender.name for contender in FILE_CONTENDERS}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            raise UsageError(
                f"there is no contender {name!r}", remedy=f"choose from {', '.join(close or sorted(known))}"
            )


def select_contenders(benchmark: str, names: Sequence[str]) -> list[Contender]:
    """Return the contenders of a benchmark, or the named ones. Raises `UsageError` if none of the names takes part."""
    of_benchmark = [contender for contender in CONTENDERS if benchmark in contender.benchmarks]
    selected = [contender for contender in of_benchmark if not names or contender.name in names]
    if not selected:
        remedy = f"choose from {', '.join(contender.name for contender in of_benchmark)}"
        raise UsageError(f"none of {', '.join(names)} takes part in {benchmark}", remedy=remedy)
    return selected
