"""Source cores, served deadline by deadline."""

from __future__ import annotations

import numpy as np

from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import NEVER, SECOND
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_UNICAST,
    GROUP,
    MS,
    OWN,
    PEER,
    SEGMENT,
    deadlines,
    nak_packet,
    parameters,
    payload_of,
    train_of,
)

START = 1000 * SECOND
QUIET = {"ambient_spm_ivl": 3600 * SECOND, "ihb_min": 3600 * SECOND, "ihb_max": 3600 * SECOND}


def source(first=0, flow="rate", **changes):
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, first_sqn=first, started_at_ns=1_700_000_000 * SECOND + 7, flow=flow)
    return SourceCore(setup, parameters(**changes), START)


def run(core, until, *, most=10_000):
    """Serve every deadline up to an instant; what left, and when."""
    log = []
    for now in deadlines(core, START, until, most=most):
        effects = core.handle_deadline(now)
        # Every call at a deadline does something or moves the deadline.
        assert effects or core.deadline_ns > now, now
        log.append((now, effects))
    return log


def drain(core, until=NEVER - 1):
    """Serve deadlines until all that was accepted has left."""
    log = []
    while core.window.has_unsent:
        now = max(START, core.deadline_ns)
        assert now <= until
        log.append((now, core.handle_deadline(now)))
    return log


def with_data(count=20, first=0, **changes):
    """A source that has sent some packets and has been quiet since."""
    core = source(first, **QUIET | {"rdata_hold_ivl": MS} | changes)
    core.submit([payload_of(sqn) for sqn in range(first, first + count)])
    run(core, START + SECOND)
    assert core.window.lead == first + count - 1
    return core


def receive(core, packet, now, channel=BY_UNICAST, peer=PEER):
    return core.receive(train_of(packet), channel, peer, now)


def nak(*sqns, **changes):
    return nak_packet(*sqns, source_nla=OWN, group_nla=GROUP, **changes)


def all_effects(log):
    return [effect for _, effects in log for effect in effects]


def octets_of(effect):
    return effect.octets.nbytes if isinstance(effect.octets, np.ndarray) else len(effect.octets)
