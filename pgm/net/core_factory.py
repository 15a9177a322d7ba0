"""Construction of cores from a node's plan."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs

from pgm.core.acked.ack_bound import AT_ONCE, AckBound
from pgm.core.control_codes import NO_CONTROL_KEYS, ControlKeys
from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours
from pgm.core.late_join.states import state_port
from pgm.core.named_children import NamedChildren
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.receiver.snapshots import companion_receiver
from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.segment import Segment
from pgm.core.session.key_records import PayloadSealer
from pgm.core.session.proofs import Prover
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import proof_companions
from pgm.core.source.multi_line import MultiLineSource
from pgm.core.source.setup import SourceSetup
from pgm.core.source.snapshots import state_companion
from pgm.core.source.source import SourceCore
from pgm.core.source_names import SourceNames, gsi_of
from pgm.errors import UsageError
from pgm.net.link.permitted import COMPANIONS, PROVED, WITH_STATES, PortOf, allowed_sources, with_companions
from pgm.parameters import Parameters
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.wire.formats import Tsi
from pgm.wire.options import SourceFile
from pgm.wire.signed_spm import SpmSigner

_ANY_ADDRESS = {False: "0.0.0.0", True: "::"}  # by whether it is IPv6


def segments_of(plan: NodePlan) -> list[Segment]:
    """Return the plan's segments in the form of the cores, for a node without sockets of its own."""
    return [
        Segment(
            index=index,
            name=segment.name,
            address=segment.address or _ANY_ADDRESS[":" in segment.group],
            group=segment.group,
            upstream=segment.upstream,
            downstream=segment.downstream,
            peers=segment.peers,
            subnet=segment.interface if "/" in segment.interface else None,
        )
        for index, segment in enumerate(plan.segments)
    ]


def stream_of(plan: NodePlan, name: str | None) -> StreamPlan:
    """Return the named stream of a node, or its only one. Raises `UsageError`."""
    known = ", ".join(stream.name for stream in plan.streams)
    if name is None:
        if len(plan.streams) == 1:
            return plan.streams[0]
        raise UsageError(f"node {plan.name} has several streams", remedy=f"name one of {known}")
    for stream in plan.streams:
        if stream.name == name:
            return stream
    raise UsageError(f"node {plan.name} has no stream {name!r}", remedy=f"name one of {known}")


def unordered_ports(streams: Sequence[StreamPlan]) -> frozenset[int]:
    """Return the data ports of streams that are delivered as they arrive."""
    return frozenset(stream.data_port for stream in streams if stream.order != "ordered")


@attrs.frozen
class SourceStart:
    """Settings of a source that differ at each start. Without `rng` the TSI, which is random, seeds its polls."""

    tsi: Tsi
    started_at_ns: int  # wall clock, ns since 1970
    now_ns: int  # by the clock of the cores
    rng: random.Random | None = None
    signer: SpmSigner | None = None  # of a signed stream
    prover: Prover | None = None  # of its packets
    sealer: PayloadSealer | None = None  # of a sealed stream
    state_prover: Prover | None = None  # of the packets of its states
    state_sealer: PayloadSealer | None = None  # of its states
    control: ControlKeys = NO_CONTROL_KEYS  # codes of requests for an authenticated stream
    file: SourceFile | None = None  # digests that SPMs carry


def own_parameters(plan: NodePlan, stream: StreamPlan | None = None) -> Parameters:
    """Return the parameters of a core, which are its own: they may change in place."""
    return attrs.evolve(plan.parameters if stream is None else plan.parameters_of(stream))


def source_core(plan: NodePlan, stream: StreamPlan, segments: Sequence[Segment], start: SourceStart) -> SourceCore:
    """Make a source of one stream on all of its segments."""
    setup = _source_setup(plan, stream, segments, start)
    parameters = own_parameters(plan, stream)
    companions = proof_companions(start.prover, start.sealer)
    if companions:
        _require_own_ports(stream, plan.streams, PROVED)
    if not companions and not setup.lines:
        return SourceCore(setup, parameters, start.now_ns, start.rng)
    source = MultiLineSource if setup.lines else CompanionSource
    return source(setup, parameters, start.now_ns, companions, start.rng)


def _source_setup(plan: NodePlan, stream: StreamPlan, segments: Sequence[Segment], start: SourceStart) -> SourceSetup:
    return SourceSetup(
        start.tsi,
        segments[0],
        stream.data_port,
        started_at_ns=start.started_at_ns,
        flow=stream.flow,
        lines=tuple(segments[1:]),
        signer=start.signer,
        control=start.control,
        file=start.file,
        children=_children(plan),
        sealer=start.sealer,
    )


def snapshot_source(
    plan: NodePlan, stream: StreamPlan, segments: Sequence[Segment], start: SourceStart
) -> CompanionSource:
    """Make a source of one stream whose application offers states. Raises `UsageError` where joiners cannot use them."""
    parameters = own_parameters(plan, stream)
    if len(segments) > 1:
        raise UsageError(
            "a source on redundant lines offers no snapshots", remedy="leave out snapshot=, or use a single line"
        )
    if not parameters.private_options:
        raise UsageError(
            "snapshots need options of this implementation, and private_options = false",
            remedy="leave out snapshot=, or set private_options = true",
        )
    if stream.order != "ordered":
        raise UsageError(
            "a snapshot needs an ordered stream", remedy='leave out snapshot=, or write order = "ordered" at the stream'
        )
    setup = _source_setup(plan, stream, segments, start)
    _require_own_ports(stream, plan.streams, WITH_STATES if start.prover is None else COMPANIONS)

    companions = proof_companions(start.prover, start.sealer)
    companions.append(state_companion(start.state_prover, start.state_sealer))
    return CompanionSource(setup, parameters, start.now_ns, companions, start.rng)


def _require_own_ports(stream: StreamPlan, streams: Sequence[StreamPlan], companions: Sequence[PortOf]) -> None:
    """Raise `UsageError` if a stream has the data port of a companion of another one."""
    for other in streams:
        if other.data_port in {port_of(stream.data_port) for port_of in companions}:
            raise UsageError(
                f"data port {other.data_port} of the stream {other.name} is for snapshots, proofs or key records of "
                f"the stream {stream.name}",
                remedy=f"give the stream {other.name} another data_port",
            )


def neighbours_of(plan: NodePlan, streams: Sequence[StreamPlan]) -> Neighbours:
    """Return the other nodes of the topology, as the core of a node knows them."""
    return Neighbours(
        parents=plan.parents,
        repairers=plan.repairers,
        siblings=plan.siblings,
        keepers=plan.keepers,
        local_repairers=plan.local_repairers,
        local_relays=plan.local_relays,
        assist_rank=plan.assist_rank,
        asks_below_trail=plan.asks_below_trail,
        children=_children(plan),
        allowed=allowed_sources(plan, streams),
        names=_source_names(plan, streams),
    )


def _children(plan: NodePlan) -> NamedChildren:
    named = plan.children
    return NamedChildren(named.addresses, named.elements, are_all=named.are_all)


def lines_of(plan: NodePlan, segments: Sequence[Segment]) -> tuple[LineSetup, ...]:
    """Return the further segments that bring a node's streams."""
    by_name = {segment.name: segment for segment in segments}
    return tuple(LineSetup(by_name[line.segment], line.parents, line.repairers) for line in plan.lines)


def gsi_name(plan: NodePlan, stream: StreamPlan, node: str) -> str:
    """Return the name from which a node of the topology derives the global source id of a stream."""
    return f"{stream.name}.{node}.{plan.topology}"


def _source_names(plan: NodePlan, streams: Sequence[StreamPlan]) -> SourceNames:
    """Return the names of the sources that the topology has for some streams."""
    return SourceNames(
        {gsi_of(gsi_name(plan, stream, node)): node for stream in streams for node in stream.sources},
        {stream.data_port: stream.sources[0] for stream in streams if len(stream.sources) == 1},
    )


def receiver_core(
    plan: NodePlan,
    streams: Sequence[StreamPlan],
    segments: Sequence[Segment],
    rng: random.Random,
    ack_bound: AckBound = AT_ONCE,
    starts: StartPositions = BY_PARAMETERS,
    signers: StreamSigners = NO_SIGNERS,
) -> ReceiverCore:
    """Make a receiver of some streams. `ack_bound` tells what its application has taken, `starts` what it took before.

    Raises `UsageError` for a start with a snapshot of a stream that is not ordered.
    """
    wants_state = plan.parameters.join_from == "snapshot"
    ports = frozenset(stream.data_port for stream in streams)
    if wants_state:
        for stream in streams:
            _require_own_ports(stream, streams, WITH_STATES if stream.signers is None else COMPANIONS)
        if unordered_ports(streams):
            raise UsageError(
                "a snapshot needs an ordered stream",
                remedy='write order = "ordered" at the stream, or name another stream',
            )
    setup = ReceiverSetup(
        segment=segments[0],
        parents=plan.parents,
        data_ports=ports,
        state_ports=frozenset(map(state_port, ports)) if wants_state else frozenset(),
        lines=lines_of(plan, segments),
        local_repairers=plan.local_repairers,
        local_relays=plan.local_relays,
        keepers=plan.keepers,
        asks_below_trail=plan.asks_below_trail,
        unordered_ports=unordered_ports(streams),
        allowed=allowed_sources(plan, streams),
        unreliable_ports=frozenset(stream.data_port for stream in streams if stream.order == "unreliable"),
        late_ports=frozenset(stream.data_port for stream in streams if stream.verify == "after")
        if starts is BY_PARAMETERS  # a saved position must be proved
        else frozenset(),
        names=_source_names(plan, streams),
        ack_bound=ack_bound,
        starts=starts,
        signers=attrs.evolve(signers, by_port=with_companions(signers.by_port)),
    )
    return companion_receiver(setup, own_parameters(plan), rng)


def element_setup(plan: NodePlan, segments: Sequence[Segment], signers: StreamSigners = NO_SIGNERS) -> ElementSetup:
    """Return the setup of an aggregator or repairer: its place in the tree."""
    return ElementSetup(
        up=next(segment for segment in segments if segment.upstream),
        downs=tuple(segment for segment in segments if segment.downstream),
        parents=plan.parents,
        repairers=plan.repairers,
        partners=plan.partners,
        lines=lines_of(plan, segments),
        is_standby=plan.is_standby,
        allowed=allowed_sources(plan, plan.streams),
        signers=attrs.evolve(signers, by_port=with_companions(signers.by_port)),
        assist_rank=plan.assist_rank,
        keepers=plan.keepers,
        siblings=plan.siblings,
        children=_children(plan),
        asks_below_trail=plan.asks_below_trail,
        names=_source_names(plan, plan.streams),
    )
