"""Hypothesis strategies for packets and options, drawn from the field tables of `pgm.wire`.

Every field kind has one strategy. The declaration of an option or packet class gives its strategy, so a new row of the
tables needs no line here.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs
from hypothesis import strategies as st

from pgm.wire.control_packets import CONTROL, Nak, Packet
from pgm.wire.formats import UPSTREAM, Kind, Nla, PacketType, Tsi
from pgm.wire.options import (
    CODE_OCTETS,
    MAX_NAK_LIST,
    OPTIONS,
    PROOF_OCTETS,
    SEGMENT_KEY_OCTETS,
    ControlCode,
    CurrTgsize,
    NakList,
    Option,
    Options,
    ParityGrp,
    ParityPrm,
    SegmentKey,
    SpmSignature,
    UnknownOption,
)
from pgm.wire.sequence_numbers import MASK

u16s = st.integers(0, 0xFFFF)
# Edges of the circular space come up far more often than by chance.
u32s = st.one_of(st.integers(0, MASK), st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, MASK - 1, MASK]))
ports = u16s
tsis: st.SearchStrategy[Tsi] = st.binary(min_size=8, max_size=8)
ipv4s: st.SearchStrategy[Nla] = st.ip_addresses(v=4).map(str)
ipv6s: st.SearchStrategy[Nla] = st.ip_addresses(v=6).map(str)
nlas = st.one_of(ipv4s, ipv6s)

_FIELDS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.U16: u16s,
    Kind.U32: u32s,
    Kind.NLA: nlas,
    Kind.BARE_NLA: nlas,
    Kind.RAW: st.binary(max_size=40),
}


def nak_lists(most: int = MAX_NAK_LIST) -> st.SearchStrategy[NakList]:
    """Draw a NAK list of 1 to `most` sqns."""
    return st.lists(u32s, min_size=1, max_size=most).map(lambda sqns: NakList(sqns=tuple(sqns)))


def _declared(cls: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Return a strategy for each field that the class declares for the wire."""
    return {
        field.name: _FIELDS[field.metadata["kind"]]
        for field in attrs.fields(cls)
        if field.metadata.get("kind") not in (None, Kind.PAD16)
    }


def options_of(cls: type[Option]) -> st.SearchStrategy[Option]:
    """Draw an option of a class: its fields, and the bits of its fourth octet."""
    if cls is NakList:
        return nak_lists()
    if cls is ParityPrm:
        offers = st.sampled_from([(True, False), (False, True), (True, True)])
        sizes = st.integers(0, 31).map(lambda bits: 1 << bits)
        return st.builds(lambda size, offer: ParityPrm(size, *offer), sizes, offers)
    if cls in (ParityGrp, CurrTgsize):
        return u32s.filter(bool).map(cls)
    drawn = _declared(cls)
    if cls is SegmentKey:
        sizes = st.sampled_from([0, SEGMENT_KEY_OCTETS])
        drawn["content"] = sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size))
    if cls in (SpmSignature, ControlCode):
        size = PROOF_OCTETS if cls is SpmSignature else CODE_OCTETS
        drawn["proof"] = st.binary(min_size=size, max_size=size)
    defaults = {field.name: field.default for field in attrs.fields(cls)}
    for name, mask in cls.FLAGS.items():
        drawn[name] = st.booleans() if isinstance(defaults[name], bool) else st.integers(0, mask)
    return st.builds(cls, **drawn)


unknown_options = st.builds(
    UnknownOption,
    number=st.integers(1, 0x7F).filter(lambda number: number not in OPTIONS),
    octet2=st.integers(0, 0xFF),
    octet3=st.integers(0, 0xFF),
    value=st.binary(max_size=40),
)


def classes_on(kind: PacketType) -> list[type[Option]]:
    """Return the option classes that a packet type may carry."""
    return [cls for cls in OPTIONS.values() if kind in cls.CARRIERS]


def option_sets(kind: PacketType, most: int = 4) -> st.SearchStrategy[Options]:
    """Draw options for a packet type, each class at most once."""
    known = classes_on(kind)
    drawn = st.lists(st.sampled_from(known), max_size=most, unique=True) if known else st.just([])
    return drawn.flatmap(
        lambda classes: st.tuples(
            st.tuples(*[options_of(cls) for cls in classes]), st.lists(unknown_options, max_size=1)
        )
    ).map(lambda pair: (*pair[0], *pair[1]))


def packets_of(kind: PacketType) -> st.SearchStrategy[Packet]:
    """Draw control packets of one type, with and without options."""
    cls = CONTROL[kind]
    drawn = _declared(cls)
    if cls is Nak:
        drawn["kind"] = st.just(kind)
    return st.builds(cls, tsi=tsis, data_port=ports, options=option_sets(kind), parity=st.booleans(), **drawn)


packets = st.sampled_from(sorted(CONTROL)).flatmap(packets_of)


def is_ipv6(address: Nla) -> bool:
    """Return whether an address is an IPv6 address."""
    return ipaddress.ip_address(address).version == 6


def port_order(kind: PacketType, tsi: Tsi, data_port: int) -> bytes:
    """Return the first four octets of a packet of this type (W-14)."""
    sport = tsi[6:]
    dport = data_port.to_bytes(2, "big")
    return dport + sport if kind in UPSTREAM else sport + dport
