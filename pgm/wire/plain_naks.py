"""NAKs that ask one source for a list and say nothing else, read alone in a few calls, and the NCFs for them.

`pgm.wire.control_packets` does the same for whatever else there is, and says what is right: one that is not written so is its.
"""

from __future__ import annotations

import struct

from pgm.wire import checksum
from pgm.wire.control_packets import encode_list
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.naks import LIST_SQNS

_CHECKSUM_AT, _REST_AT = checksum.CHECKSUM_AT, checksum.CHECKSUM_AT + 2
_SQN_AT, _MIDDLE_AT = 16, 20
_SQN_OCTETS = 4


class PlainNaks:
    """Those of one session that come from below one segment, whose NAK_SRC and NAK_GRP are these addresses."""

    def __init__(self, tsi: Tsi, data_port: int, source_nla: Nla, group_nla: Nla) -> None:
        ends = tsi, data_port, source_nla, group_nla
        self._forms: dict[
            int, tuple[bytes, struct.Struct]
        ] = {}  # what lies between first sqn and list, by octets of all
        for count in range(2, LIST_SQNS + 1):
            nak, ncf = (encode_list(kind, *ends, (0,) * count) for kind in (PacketType.NAK, PacketType.NCF))
            assert nak[_REST_AT:] == ncf[_REST_AT:], "a NAK and its NCF differ in more than what comes first"
            self._list_at = len(nak) - _SQN_OCTETS * (count - 1)
            middle = nak[_MIDDLE_AT : self._list_at]
            self._forms[len(nak)] = middle, struct.Struct(f">{_SQN_AT}xI{len(middle)}x{count - 1}I")
        self._front, self._ncf_front = nak[:_CHECKSUM_AT], ncf[:_CHECKSUM_AT]
        self._rest = nak[_REST_AT:_SQN_AT]

    def read_untrusted(self, octets: bytes) -> tuple[int, ...] | None:
        """The wire sqns of such a NAK, if it is one and sound; else None."""
        form = self._forms.get(len(octets))
        if form is None or octets[:_CHECKSUM_AT] != self._front or octets[_REST_AT:_SQN_AT] != self._rest:
            return None
        middle, sqns = form
        if octets[_MIDDLE_AT : self._list_at] != middle or checksum.is_absent(octets) or not checksum.is_valid(octets):
            return None
        return sqns.unpack(octets)

    def list_key(self, octets: bytes) -> bytes:
        """Of one that was read what `pgm.wire.naks.list_key` gives for its sqns."""
        return octets[_SQN_AT:_MIDDLE_AT] + octets[self._list_at :]

    def ncf_for(self, octets: bytes) -> bytes:
        """The NCF for one that was read: octet for octet what `pgm.wire.control_packets.ncf_for` makes of it."""
        field = checksum.patched(octets[_CHECKSUM_AT:_REST_AT], self._front, self._ncf_front)
        return self._ncf_front + field + octets[_REST_AT:]
