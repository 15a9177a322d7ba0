"""Generated telemetry with known losses: events of links with given impairments."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pgm.impairments import Impairment, Injector
from pgm.parameters import Parameters
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event

START_US = 1_767_225_600_000_000


def lossy_links(folder: Path, links: dict[str, Impairment], packets: int) -> dict[str, int]:
    """Write one node behind each link; return the packets that each node lacked.

    A link carries one packet a millisecond.
    """
    log = EventLog(folder, "made", Parameters(), in_background=False)
    lost = {}
    for node, impairment in links.items():
        fate = Injector(impairment, node).draw(packets)
        assert fate is not None
        edges = np.flatnonzero(np.diff(np.concatenate([[0], fate, [0]]).astype(int)))
        lost[node] = int(fate.sum())
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            at = START_US + 1000 * end
            log.add(Event(at, node, "receiver", node, "repaired", "tsi", first, end - first, "r", 5000, 0, "WAIT_DATA"))
        arrived = packets - lost[node]
        log.add(Event(START_US, node, "receiver", node, "received", "tsi", 0, arrived, "s", 1_000_000))
    log.close()
    return lost
