"""Parity in tests of the cores: items read back, and groups rebuilt by hand."""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.effects import Effect
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, ParityPrm, find
from pgm.wire.parity import ParityPacket, read_parity
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data
from tests.unit.core.makers import sent_control, sent_items


def parity_of(effects: Iterable[Effect], kind: PacketType, size: int, near: int = 0) -> list[ParityPacket]:
    """Parity packets of one type that go out."""
    return [
        packet
        for item in sent_items(effects)
        if isinstance(item, Data) and item.parity and item.type is kind
        for packet in read_parity(item, unwrap(item.wire_sqn, near), size)
    ]


def kinds_of(effects: Iterable[Effect]) -> list[str]:
    """What goes out, in order: a letter for each data packet, P for parity, in lower case as RDATA."""
    letters = []
    for item in sent_items(effects):
        if isinstance(item, Data):
            letter = "P" if item.parity else "D"
            letters += [letter if item.type is PacketType.ODATA else letter.lower()] * item.count
    return letters


def offers(effects: Iterable[Effect]) -> list[tuple[int, ParityPrm | None, int | None]]:
    """Lead, OPT_PARITY_PRM and OPT_CURR_TGSIZE of every SPM that goes out."""
    found = []
    for spm in sent_control(effects, PacketType.SPM):
        short = find(spm.options, CurrTgsize)
        found.append((spm.lead, find(spm.options, ParityPrm), None if short is None else short.size))
    return found
