"""Counts of the probes that one socket has heard, by segment, sender and kind. No socket and no clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from deploy.netcheck.probes import Probe, ProbeKind, SegmentId
from pgm.units import MIB

_MOST_ROWS = 4096  # of one socket: segments and senders of a large tree
_MOST_SIZES = 32
_MOST_SEEN = 4 * MIB  # octets of one socket, a bit for each number: bursts of 500 senders with the most packets

Key = tuple[SegmentId, int, ProbeKind]


@attrs.define
class TallyRow:
    """Probes of one kind from one sender on one segment. Times are ns since 1970."""

    sender_ttl: int
    first_ns: int
    last_ns: int = 0
    octets: int = 0
    duplicates: int = 0
    reordered: int = 0
    least_ttl: int = 0  # that arrived; 0: the kernel does not tell
    count: int = 0
    sizes: Counter[int] = attrs.field(factory=Counter)
    _highest: int = -1
    _seen: bytearray = attrs.field(factory=bytearray)  # a bit for each number

    def growth(self, number: int) -> int:
        """Return the octets that a number needs beside those that the row has."""
        return max(0, number // 8 + 1 - len(self._seen))

    def add(self, probe: Probe, octets: int, ttl: int, at_ns: int) -> None:
        """Count a probe."""
        self._seen.extend(bytes(self.growth(probe.number)))
        place, bit = probe.number // 8, 1 << probe.number % 8
        if self._seen[place] & bit:
            self.duplicates += 1
            return
        self._seen[place] |= bit
        self.count += 1
        self.reordered += probe.number < self._highest
        self._highest = max(self._highest, probe.number)
        self.octets += octets
        self.last_ns = at_ns
        if ttl and (not self.least_ttl or ttl < self.least_ttl):
            self.least_ttl = ttl
        if octets in self.sizes or len(self.sizes) < _MOST_SIZES:
            self.sizes[octets] += 1


@attrs.define
class Tally:
    """Counts of one socket, in bounded memory. Probes beyond the bounds are not counted."""

    _rows: dict[Key, TallyRow] = attrs.field(factory=dict)
    _octets: int = 0  # of the numbers of all rows

    def add(self, probe: Probe, octets: int, ttl: int, at_ns: int) -> None:
        """Count a probe of `octets`, which arrived with a TTL at a time."""
        key = probe.segment, probe.sender, probe.kind
        row = self._rows.get(key) or TallyRow(probe.ttl, at_ns)
        growth = row.growth(probe.number)
        if self._octets + growth > _MOST_SEEN or (key not in self._rows and len(self._rows) >= _MOST_ROWS):
            return
        self._octets += growth
        self._rows[key] = row
        row.add(probe, octets, ttl, at_ns)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain values for JSON."""
        return [
            {
                "segment": segment,
                "sender": sender,
                "kind": kind.name.lower(),
                "count": row.count,
                "duplicates": row.duplicates,
                "reordered": row.reordered,
                "sender_ttl": row.sender_ttl,
                "least_ttl": row.least_ttl,
                "octets": row.octets,
                "lasted_ns": row.last_ns - row.first_ns,
                "sizes": {str(size): count for size, count in sorted(row.sizes.items())},
            }
            for (segment, sender, kind), row in self._rows.items()
        ]


@attrs.define
class Echo:
    """Answers of one host to questions by unicast. Times are ns."""

    count: int = 0
    rtt_ns: int = 0  # the shortest
    ahead_ns: int = 0  # clock of the other host against this one, at the shortest round trip

    def add(self, answer: Probe, now_ns: int) -> None:
        """Take an answer that arrives at `now_ns`. Source: RFC 5905, 8."""
        rtt = (now_ns - answer.asked_ns) - (answer.answered_ns - answer.heard_ns)
        if not self.count or rtt < self.rtt_ns:
            self.rtt_ns = rtt
            self.ahead_ns = ((answer.heard_ns - answer.asked_ns) + (answer.answered_ns - now_ns)) // 2
        self.count += 1
