"""Fixed setup of a receiver core."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pgm.core.acked.ack_bound import AT_ONCE, AckBound
from pgm.core.late_join.states import state_port
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.recovery.repair_table import RECEIVER, RepairTable
from pgm.core.segment import Segment
from pgm.core.session.key_records import key_port
from pgm.core.session.proofs import proof_port
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.core.session.source_filter import ALL_SOURCES, AllowedSources
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.session.state import SessionState
from pgm.core.source_names import NO_NAMES, SourceNames
from pgm.core.window.proved_window import Trial
from pgm.wire.formats import Nla

# Trial of the packets of a session, or None if they need no proofs.
NewTrial = Callable[[SessionState, Parents], Trial | None]


def no_trial(_state: SessionState, _parents: Parents) -> Trial | None:
    """Return None: no packet needs a proof."""
    return None


@attrs.frozen
class ReceiverSetup:
    """Settings of one receiver from the topology."""

    segment: Segment
    parents: tuple[Nla, ...] = ()  # in order of preference; SPM_PATH comes last
    data_ports: frozenset[int] = frozenset()  # streams to take; empty takes all
    local_repairers: frozenset[Nla] = frozenset()  # repairers of the segment
    local_relays: frozenset[Nla] = frozenset()  # aggregators that relay to the segment, and repair what they keep
    keepers: tuple[Nla, ...] = ()  # upstream elements that may fetch history from further up
    asks_below_trail: bool = False  # the parents hold more than the source's window
    repair_table: RepairTable = RECEIVER
    # streams that are delivered in arrival order, including unreliable ones
    unordered_ports: frozenset[int] = frozenset()
    late_ports: frozenset[int] = frozenset()  # streams that are delivered before they are proved
    unreliable_ports: frozenset[int] = frozenset()  # streams without NAKs
    lines: tuple[LineSetup, ...] = ()  # further segments that bring the same streams
    allowed: AllowedSources = ALL_SOURCES  # the sources whose streams are accepted
    signers: StreamSigners = NO_SIGNERS  # verifiers of the SPMs of signed streams
    names: SourceNames = NO_NAMES
    ack_bound: AckBound = AT_ONCE  # what the application has taken
    state_ports: frozenset[int] = frozenset()  # data ports of the states of the streams, for joiners that want one
    starts: StartPositions = BY_PARAMETERS  # what the application had taken in an earlier life
    new_trial: NewTrial = no_trial

    @property
    def companion_ports(self) -> frozenset[int]:
        """Data ports of states, proofs and key records that this receiver takes beside its streams."""
        proofs, sealed = self.signers.proofs, self.signers.sealed
        more = [proof_port(port) for port in self.state_ports if state_port(port) in proofs]
        more += [key_port(port) for port in self.state_ports if state_port(port) in sealed]
        return self.state_ports.union(map(proof_port, proofs), map(key_port, sealed), more)
