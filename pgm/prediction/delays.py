"""Delays of the segments of a topology, for simulations and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgm.errors import UnitError, UsageError
from pgm.topology.model import Topology
from pgm.units import MILLISECOND, parse_duration

_LOCAL_NS = MILLISECOND // 2  # delay from a segment to a node within a site
_LEAST_DELAY_NS = MILLISECOND // 20


def delays_of(topology: Topology, trips: Mapping[str, int], given: Sequence[str]) -> dict[str, int]:
    """Return the delay in ns from each segment to its nodes. Raises `UsageError`.

    A delay in `given` comes first, then half the measured round trip, then half the `rtt` of the file. In the profile
    `wan`, the file's `rtt` is for segments on which relays listen; other segments are local.
    """
    lines = {node.up.segment for node in topology.nodes.values() if node.is_relay and node.up is not None}
    delays = {}
    for name in topology.segments:
        is_far = topology.profile != "wan" or name in lines
        usual = topology.rtt // 2 if is_far else min(_LOCAL_NS, topology.rtt // 2)
        delays[name] = max(_LEAST_DELAY_NS, trips[name] // 2 if name in trips else usual)
    for delay in given:
        name, equals, text = delay.partition("=")
        if name not in delays:
            raise UsageError(
                f"--delay {delay}: there is no segment {name!r}",
                remedy=f"write SEGMENT=TIME with one of {', '.join(delays)}",
            )
        if not equals:
            raise UsageError(f"--delay {delay} has no time", remedy=f"write SEGMENT=TIME, such as {name}=5ms")
        try:
            delays[name] = parse_duration(text)
        except UnitError as error:
            raise UsageError(f"--delay {delay}: {error.message}", remedy=error.remedy) from None
    return delays
