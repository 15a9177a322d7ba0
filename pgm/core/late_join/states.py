"""States of a source's application, which joiners get before the stream.

The states of a stream are the messages of a second session of the same source. Its data port and the source port of
its TSI differ from those of the stream in one bit, so receivers of the stream alone never take a state. Otherwise the
session is ordinary PGM: relays pass it on, and repairers cache it. SPMs of the stream with `StateOffer` say that there
are states. An SPMR with that option, from hop to hop up to the source, requests one. SPMs of the states name the sqn
after the newest state.
"""

from __future__ import annotations

import enum
import struct

import attrs

from pgm.parameters import Parameters
from pgm.units import KIB, SECOND
from pgm.wire.formats import Tsi, companion_tsi
from pgm.wire.sequence_numbers import wrap

_BIT = 0x8000  # by which ports of states differ from those of their stream
_HEAD = struct.Struct(">IIQ")  # kind, low half of the position, octets of the state


class StateKind(enum.IntEnum):
    """Kind of a message about a state."""

    WHOLE = 0
    TOO_LARGE = 1  # without the state itself


@attrs.frozen
class StateMessage:
    """Message about a state, which covers all messages before sqn `position`, a number of 32 bits."""

    kind: int
    position: int
    octets: int
    payload: memoryview

    def encode(self) -> bytes:
        """Return the message in octets."""
        return _HEAD.pack(self.kind, wrap(self.position), self.octets) + self.payload

    @classmethod
    def decode_untrusted(cls, message: memoryview) -> StateMessage | None:
        """Return the content of a message; None for any other octets."""
        if len(message) < _HEAD.size:
            return None
        kind, position, octets = _HEAD.unpack_from(message)
        payload = message[_HEAD.size :]
        expected = {StateKind.WHOLE: octets, StateKind.TOO_LARGE: 0}.get(kind)
        return cls(kind, position, octets, payload) if len(payload) == expected else None


def state_port(data_port: int) -> int:
    """Return the data port of the states of a stream, or of the stream of states."""
    return data_port ^ _BIT


def state_tsi(tsi: Tsi) -> Tsi:
    """Return the TSI of the states of a session, or of the session of states."""
    return companion_tsi(tsi, _BIT)


def most_octets(parameters: Parameters) -> int:
    """Return the octets of the largest message about a state."""
    return parameters.snapshot_bytes + _HEAD.size


def sender_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of the session of states: the share of late joiners of the rate, and room for one state."""
    rate = max(1, round(parameters.txw_max_rte * parameters.join_share))
    octets = most_octets(parameters)
    return attrs.evolve(
        parameters,
        # Proofs of a state are kept as long as the state: from its first packet on.
        txw_secs=max(parameters.snapshot_ivl, parameters.txw_secs) + octets * SECOND // rate,
        txw_max_rte=rate,
        txw_min_rte=min(parameters.txw_min_rte, rate),
        txw_max_pps=0,
        rdata_share=1.0,  # all of the session lies within the share of late joiners
        txw_bytes=2 * octets + 64 * KIB,  # the largest message of a window is half of it
        txw_sqns=0,
        txw_adv_mode="application",  # the next state, or the end of its time, ends a state
        max_apdu=octets,
        fec_group=0,
        warm_bytes=0,
        mark_ends=False,
        join_ivl=0,
    )


def joiner_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of a joiner for the session of states."""
    return attrs.evolve(
        parameters,
        join_from="now",
        rxw_bytes=2 * most_octets(parameters),  # of one state in packets: it waits behind its gaps
        max_apdu=most_octets(parameters),
        inbox_bytes=1 << 62,  # messages are taken at once; the largest message is the bound
        excess_nak_policy="go-on",  # a joiner that comes in the middle of a state requests its first half
    )
