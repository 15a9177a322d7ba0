"""The fixed setup of a receiver core."""

from __future__ import annotations

import attrs

from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.recovery.repair_table import RECEIVER, RepairTable
from pgm.core.segment import Segment
from pgm.core.session.source_filter import ALL_SOURCES, SourceFilter
from pgm.wire.formats import Nla


@attrs.frozen
class ReceiverSetup:
    """What the topology says about one receiver."""

    segment: Segment
    parents: tuple[Nla, ...] = ()  # in order of preference; SPM_PATH comes behind them
    data_ports: frozenset[int] = frozenset()  # streams to take; empty takes all
    local_repairers: frozenset[Nla] = frozenset()  # nodes of the segment that repair from a cache of their own
    keepers: tuple[Nla, ...] = ()  # elements above who may get history from further up
    asks_below_trail: bool = False  # the parents hold more than the source's window
    repair_table: RepairTable = RECEIVER
    unordered_ports: frozenset[int] = frozenset()  # streams that are delivered as they arrive, unreliable ones too
    unreliable_ports: frozenset[int] = frozenset()  # streams for which nobody asks
    lines: tuple[LineSetup, ...] = ()  # further segments that bring the same streams
    allowed: SourceFilter = ALL_SOURCES  # who may bring streams
