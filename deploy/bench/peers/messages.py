"""Test messages, cheap to make and check: a number of 8 octets, then octets equal in all messages of a size."""

from __future__ import annotations

import struct
import time

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]

NUMBER_OCTETS = 8
_NUMBER = struct.Struct(">Q")
PROBE = (1 << 64) - 1  # number of probes, which only test whether a receiver is there
_CHECKED_OCTETS = 8192  # of a message in each batch
_BATCH_OCTETS = 262_144  # octets of messages made at once: several trains of the largest kind


class MessageMaker:
    """Maker of messages of one size, one batch at a time in the same memory."""

    def __init__(self, size: int) -> None:
        self.count = max(1, _BATCH_OCTETS // size)
        self.rows: Octets = np.tile(pattern(size), (self.count, 1))
        self._numbers = np.ndarray((self.count,), ">u8", self.rows, 0, (size,))
        self._steps = np.arange(self.count, dtype=np.uint64)
        self.made = 0

    def next(self) -> Octets:
        """Return the next messages as a (count, size) array."""
        self._numbers[:] = self._steps + np.uint64(self.made)
        self.made += self.count
        return self.rows

    def probe(self) -> Octets:
        """Return one message that is not counted."""
        self._numbers[0] = PROBE
        return self.rows[:1]


def pattern(size: int) -> Octets:
    """Return the octets of a message of this size, with the number 0."""
    octets: Octets = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    octets[:NUMBER_OCTETS] = 0
    return octets


class MessageTally:
    """Tally of received messages: checks the order of all numbers, and a part of one message in each batch.

    The part moves on, and is as large for any size of message. The whole of large messages would cost a receiver as
    much time as the reading of their packets.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pattern = pattern(size)[NUMBER_OCTETS:].tobytes()
        self.probes = 0
        self.messages = 0
        self.missing = 0
        self.disordered = 0
        self.damaged = 0
        self.first_ns = 0
        self.last_ns = 0
        self._next = 0

    def add(self, payloads: Octets) -> None:
        """Add consecutive messages, as a (count, size) array."""
        count, size = payloads.shape
        self.last_ns = time.monotonic_ns()
        if size != self._size:
            self.damaged += count
            return
        numbers = payloads[:, :NUMBER_OCTETS].view(">u8")[:, 0].astype(np.uint64)
        first, last = int(numbers[0]), int(numbers[-1])
        if last == PROBE or first == PROBE:
            numbers = numbers[numbers != PROBE]
            self.probes += count - len(numbers)
            count = len(numbers)
            if not count:
                return
            first, last = int(numbers[0]), int(numbers[-1])
        if not self.messages:
            self.first_ns = self.last_ns
        self.messages += count
        self.missing += max(0, first - self._next)
        if first < self._next or not bool((numbers == np.arange(first, first + count, dtype=np.uint64)).all()):
            self.disordered += 1
        at = self.messages * _CHECKED_OCTETS % len(self._pattern) if len(self._pattern) > _CHECKED_OCTETS else 0
        end = at + _CHECKED_OCTETS
        if payloads[-1, NUMBER_OCTETS + at : NUMBER_OCTETS + end].tobytes() != self._pattern[at:end]:
            self.damaged += 1
        self._next = last + 1

    def add_one(self, payload: bytes) -> None:
        """Add one message."""
        number = _NUMBER.unpack_from(payload)[0]
        if number == self._next and self.messages:
            self._next = number + 1
            self.messages += 1
            return
        if number == PROBE:
            self.probes += 1
            return
        if not self.messages:
            self.first_ns = time.monotonic_ns()
        if number != self._next:
            self.missing += max(0, number - self._next)
            self.disordered += number < self._next
        self._next = number + 1
        self.messages += 1

    def stamp(self) -> None:
        """Set the arrival time of messages that `add_one` took; a clock reading for each would cost too much."""
        self.last_ns = time.monotonic_ns()

    def result(self) -> dict[str, int]:
        """Return the figures for the benchmark."""
        return {
            "messages": self.messages,
            "missing": self.missing,
            "disordered": self.disordered,
            "damaged": self.damaged,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
        }


class SessionTallies:
    """Tallies of several sessions, each with numbers of its own."""

    def __init__(self, size: int, sessions: int) -> None:
        self._size = size
        self._sessions = sessions  # that will come
        self._tallies: dict[bytes, MessageTally] = {}  # by TSI

    def add(self, tsi: bytes, payloads: Octets) -> None:
        """Add consecutive messages of one session."""
        tally = self._tallies.get(tsi)
        if tally is None:
            tally = self._tallies[tsi] = MessageTally(self._size)
        tally.add(payloads)

    @property
    def probes(self) -> int:
        """Return the probes of the session with the fewest."""
        if len(self._tallies) < self._sessions:
            return 0
        return min(tally.probes for tally in self._tallies.values())

    @property
    def messages(self) -> int:
        """Return the messages of all sessions."""
        return sum(tally.messages for tally in self._tallies.values())

    def result(self) -> dict[str, int]:
        """Return the figures for the benchmark."""
        rows = [tally.result() for tally in self._tallies.values()]
        sums = {key: sum(row[key] for row in rows) for key in ("messages", "missing", "disordered", "damaged")}
        first_ns = min([row["first_ns"] for row in rows if row["messages"]], default=0)
        return {**sums, "first_ns": first_ns, "last_ns": max([row["last_ns"] for row in rows], default=0)}
