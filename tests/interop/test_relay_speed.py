"""Function of the program that measures relays between OpenPGM's peers.

Speeds are measured on a quiet machine only.
"""

from __future__ import annotations

import pytest
import trio

from deploy.bench.place import ETHERNET_MTU, open_place
from tests.folders import short_folder
from tests.interop.support.peers import needs_openpgm
from tests.interop.support.relay_speed import Trials, middles

pytestmark = [pytest.mark.network, needs_openpgm]

SLOW = 2000.0  # messages a second, which every relay carries on any machine
SECONDS = 0.5


def test_relay_speed_all_middles_carry_every_message() -> None:
    """Each forwarder and each relay passes all of OpenPGM's messages in order to both receivers."""
    with short_folder() as folder, open_place("namespaces", ETHERNET_MTU, 3) as place:
        trials = Trials(place, folder, SECONDS, receivers=2, waits_for_quiet=False)
        for middle in middles(place, folder).values():
            outcome = trio.run(trials.run, middle, SLOW)
            assert outcome.received == outcome.sent > 0, middle.name
            assert not outcome.disordered
            assert not outcome.damaged
