"""Reassemblers of a receiver's sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pgm.core.effects import Lost
from pgm.core.structures.arena import BlockPool
from pgm.core.window.reassembly import Reassembler
from pgm.core.window.unordered_reassembly import UnorderedReassembler
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Tsi


class SessionReassemblers:
    """Reassemblers of all sessions, with the check for messages that stand still."""

    def __init__(self, parameters: Parameters, unordered_ports: Collection[int]) -> None:
        self._parameters = parameters
        self._unordered_ports = unordered_ports
        self._blocks = BlockPool()  # for large messages, which the application soon drops
        self._by_tsi: dict[Tsi, Reassembler | UnorderedReassembler] = {}
        self._marks: dict[Tsi, tuple[int, int]] = {}  # progress of large messages at the last check
        self._checks_at_ns = 0
        self.may_be_assembling = False  # whether a large message may be incomplete

    def of(self, tsi: Tsi) -> Reassembler | UnorderedReassembler:
        """Return the reassembler of a session, by default one in order."""
        reassembler = self._by_tsi.get(tsi)
        if reassembler is None:
            reassembler = self._by_tsi[tsi] = Reassembler(tsi, self._parameters.max_apdu, self._blocks.take)
        return reassembler

    def open(self, tsi: Tsi, data_port: int) -> None:
        """Begin a session. Nothing changes for a session that goes on, or that is in order."""
        if data_port in self._unordered_ports and tsi not in self._by_tsi:
            self._by_tsi[tsi] = UnorderedReassembler(tsi, self._parameters.max_apdu)

    def end(self, tsi: Tsi) -> Iterable[Lost]:
        """Forget a session. Return the incomplete messages."""
        reassembler = self._by_tsi.pop(tsi, None)
        return reassembler.end() if reassembler else ()

    def is_between(self) -> bool:
        """Return whether no message of several packets is incomplete."""
        self.may_be_assembling = any(reassembler.mark is not None for reassembler in self._by_tsi.values())
        return not self.may_be_assembling

    def next_check_ns(self) -> int:
        """Return when to call `end_stalled`; NEVER if no message is incomplete."""
        return NEVER if self.is_between() else self._checks_at_ns

    def end_stalled(self, now_ns: int) -> list[Lost]:
        """Give up large messages without progress since the last check, at least `apdu_ivl` ago, and return them."""
        if now_ns < self._checks_at_ns:
            return []
        self._checks_at_ns = now_ns + self._parameters.apdu_ivl
        marks = {tsi: reassembler.mark for tsi, reassembler in self._by_tsi.items()}
        stalled = [tsi for tsi, mark in marks.items() if mark is not None and mark == self._marks.get(tsi)]
        self._marks = {tsi: mark for tsi, mark in marks.items() if mark is not None}
        return [lost for tsi in stalled for lost in self._by_tsi[tsi].end()]
