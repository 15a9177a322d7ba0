"""Writer of records with a bound on records a second, so that the recorder takes a bounded share of a core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pgm.flight.record import NO_PEER, NO_SEGMENT, NO_TSI, FlightKind, address_octets
from pgm.flight.ring import FlightRing
from pgm.units import SECOND
from pgm.wire.formats import Nla, Tsi
from pgm.wire.sequence_numbers import MASK

_MOST_PEERS = 4096  # addresses whose octets are kept

Detail: TypeAlias = tuple[int, int, int, int]  # value, tries, place of the cause, us since the counter was read before
Sqns: TypeAlias = tuple[int, int]  # first, count

NO_DETAIL: Detail = (0, 0, 0, 0)
NO_SQNS: Sqns = (0, 0)


class RecordWriter:
    """Writer of one recorder. `now_ns` is the time of the records that follow, by the core's clock."""

    def __init__(self, ring: FlightRing, most_records: int, now_ns: int) -> None:
        """Write at most `most_records` a second."""
        self.now_ns = now_ns
        self._ring = ring
        self._places = ring.places
        self._most_records = most_records
        self._left = most_records
        self._second_ns = now_ns + SECOND
        self._left_out = 0
        self._peers: dict[Nla, bytes] = {"": NO_PEER}

    def add(
        self,
        kind: FlightKind,
        place: int = NO_TSI,
        sqns: Sqns = NO_SQNS,
        segment: int = NO_SEGMENT,
        peer: Nla = "",
        detail: Detail = NO_DETAIL,
    ) -> None:
        """Write a record about sqns of the session at `place`, or count it as left out."""
        if self._left <= 0 and not self.has_new_second():
            self._left_out += 1
            return
        self._left -= 1
        value, tries, cause, since_us = detail
        octets = self._peers.get(peer) or self._peer_octets(peer)
        first, count = sqns
        body = self.now_ns, value, first & MASK, count, place, tries, kind, segment, cause, octets, since_us
        self._ring.append((body,))

    def add_each(
        self, kind: FlightKind, place: int, parts: Sequence[tuple[Sqns, Detail]], segment: int, peer: Nla = ""
    ) -> None:
        """Write records about sqns of one session, as `add` does. Each of several takes two thirds of the time."""
        if len(parts) == 1:
            [(sqns, detail)] = parts
            self.add(kind, place, sqns, segment, peer, detail)
            return
        octets, now_ns = self._peers.get(peer) or self._peer_octets(peer), self.now_ns
        while parts:
            if self._left <= 0 and not self.has_new_second():
                self._left_out += len(parts)
                return
            fitting, parts = parts[: self._left], parts[self._left :]
            self._left -= len(fitting)
            self._ring.append(
                [
                    (now_ns, value, first & MASK, count, place, tries, kind, segment, cause, octets, since_us)
                    for (first, count), (value, tries, cause, since_us) in fitting
                ]
            )

    def has_new_second(self) -> bool:
        """Begin a new second if it is time, and write what was left out in the one before. Return whether it began."""
        if self.now_ns < self._second_ns:
            return False
        self._second_ns = self.now_ns + SECOND
        self._left = self._most_records
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self.add(FlightKind.SKIPPED_RECORDS, detail=(left_out, 0, 0, 0))
        return True

    def _peer_octets(self, peer: Nla) -> bytes:
        if len(self._peers) >= _MOST_PEERS:
            self._peers.clear()
        octets = self._peers[peer] = address_octets(peer)
        return octets

    def known_place(self, tsi: Tsi) -> int | None:
        """Return the place of a session that was recorded before; None for any other."""
        return self._places.get(tsi)

    def place_of(self, tsi: Tsi, data_port: int = 0) -> int:
        """Return the place of a session. A data port of 0 is unknown."""
        place = self._places.get(tsi)
        return self._ring.session(bytes(tsi), data_port) if place is None or data_port else place

    def set_wall_offset(self, offset_ns: int) -> None:
        """Note the time of day minus the core's clock."""
        self._ring.set_wall_offset(offset_ns)
