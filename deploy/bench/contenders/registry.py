"""All contenders, in the order in which they run and are shown."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from deploy.bench.benchmarks.file_contenders import FILE_CONTENDERS
from deploy.bench.contender import Contender
from deploy.bench.contenders.openpgm import OpenPgm
from deploy.bench.contenders.openpgm_blocking import OpenPgmBlocking
from deploy.bench.contenders.openpgm_busy_poll import OpenPgmBusyPoll
from deploy.bench.contenders.openpgm_examples import OpenPgmExamples
from deploy.bench.contenders.ours_acked import OursAcked
from deploy.bench.contenders.ours_busy_poll import OursBusyPoll
from deploy.bench.contenders.ours_each import OursEach
from deploy.bench.contenders.ours_messages import OursMessages, OursMessagesBusyPoll, OursMessagesEach
from deploy.bench.contenders.ours_trio import OursTrio
from deploy.bench.contenders.raw_blocking import RawBlocking
from deploy.bench.contenders.raw_busy_poll import RawBusyPoll
from deploy.bench.contenders.raw_gso import RawGso
from deploy.bench.contenders.raw_single import RawSingle
from deploy.bench.contenders.raw_trio import RawTrio
from deploy.bench.contenders.zeromq import ZeroMq
from pgm.errors import UsageError

CONTENDERS: tuple[Contender, ...] = (
    OursTrio(),
    OursAcked(),
    OursEach(),
    OursBusyPoll(),
    OursMessages(),
    OursMessagesEach(),
    OursMessagesBusyPoll(),
    RawGso(),
    RawSingle(),
    RawBusyPoll(),
    RawBlocking(),
    RawTrio(),
    OpenPgm(),
    OpenPgmExamples(),
    OpenPgmBusyPoll(),
    OpenPgmBlocking(),
    ZeroMq(),
)


def require_known(names: Sequence[str]) -> None:
    """Raise `UsageError` for a name that nobody has, neither here nor among those who send files."""
    known = {one.name for one in CONTENDERS} | {one.name for one in FILE_CONTENDERS}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            raise UsageError(
                f"there is no contender {name!r}", remedy=f"choose from {', '.join(close or sorted(known))}"
            )


def select_contenders(benchmark: str, names: Sequence[str]) -> list[Contender]:
    """The contenders of a benchmark, or those of them that are named. Raises `UsageError` if that is nobody."""
    here = [one for one in CONTENDERS if benchmark in one.benchmarks]
    found = [one for one in here if not names or one.name in names]
    if not found:
        remedy = f"choose from {', '.join(one.name for one in here)}"
        raise UsageError(f"none of {', '.join(names)} takes part in {benchmark}", remedy=remedy)
    return found
