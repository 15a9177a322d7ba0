"""Opening of sources and receivers by topology file or by URL."""

from __future__ import annotations

import inspect
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Unpack, get_args

import attrs
import trio

from pgm.core.effects import Notice
from pgm.core.late_join.states import state_tsi
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.session.key_records import key_tsi
from pgm.core.session.proofs import proof_tsi
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.source.source import SourceCore
from pgm.core.source_names import NamedTsi, gsi_of
from pgm.deprecated import current_parameter
from pgm.errors import ProcessError, UsageError
from pgm.net.control.serve import start_answering
from pgm.net.control.status_socket import snapshot_of
from pgm.net.core_factory import (
    SourceStart,
    gsi_name,
    receiver_core,
    snapshot_source,
    source_core,
    stream_of,
    unordered_ports,
)
from pgm.net.driver.effects import Application
from pgm.net.driver.event_loops import TaskStatus, current_loop
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.driver.node_tape import taping_of
from pgm.net.driver.rest_settings import ReadSettings, receiver_read_settings
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.endpoint.ack_positions import AckPositions
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.keywords import Answer
from pgm.net.endpoint.open_nodes import OpenNode, OpenNodes
from pgm.net.endpoint.opening import opening
from pgm.net.endpoint.parameter_types import ReceiverParameters, SourceParameters
from pgm.net.endpoint.policies import Ack, OnLoss, Policies, Slow
from pgm.net.endpoint.reassembly import SessionReassemblers
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.resumption import earlier_life, resuming
from pgm.net.endpoint.source import SnapshotGiver, SnapshotState, Source, SourceOutbox
from pgm.net.endpoint.start_position import Start, start_parameters
from pgm.net.endpoint.surfaces import Surface, new_surface
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.codec import StreamDecoders, packer_of
from pgm.net.framing.zeromq import ZeromqSender
from pgm.net.keys.control_keys import control_keys_of, with_codes
from pgm.net.keys.stream_readers import require_reader
from pgm.net.keys.stream_signatures import prover_of, sealer_of, signer_of, signers_of
from pgm.net.observing import observing
from pgm.net.plan_digest import plan_digest
from pgm.parameters import ROWS, Parameters
from pgm.telemetry.logger import handler_of
from pgm.topology.check import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan, Role, StreamPlan
from pgm.topology.plan import plan_node, plan_receiver_at
from pgm.topology.problems import suggestion
from pgm.topology.url import is_url, plan_url
from pgm.wire.formats import Tsi
from pgm.wire.options import SourceFile

Target: TypeAlias = str | Path | Topology | NodePlan

_BLOCKING = ("busy_poll", "cpu")  # further arguments of `pgm.blocking`
_SYSTEM_RANDOM = random.SystemRandom()
N = TypeVar("N")


def resolve(
    target: Target, node: str | None, role: Role, parameters: Mapping[str, Any], name: str | None = None
) -> NodePlan:
    """Return the plan of a node for a file, a topology, a URL, or a plan; `name` is the node's name with a URL.

    A source's node may be opened as a receiver, too. `parameters` are rows of the parameter table, in the file's
    spelling or as numbers. Raises `TopologyError`, `UsageError` or `UnitError`.
    """
    target = _plan_of_address(target, node, role, name) or target
    if isinstance(target, NodePlan):
        plan = target
    else:
        topology = _topology(target, node)
        plan = plan_node(topology, node or "")
        if plan.role is Role.SOURCE and role is Role.RECEIVER:
            plan = plan_receiver_at(topology, plan)
    if plan.role is not role:
        raise UsageError(
            f"the role of node {plan.name} is {plan.role.value}, not {role.value}",
            remedy=f"name a node whose role is {role.value}",
        )
    return _overridden(plan, parameters)


def plans_of(
    target: Target, node: str | None, parameters: Mapping[str, Any], name: str | None = None
) -> dict[Role, NodePlan]:
    """Return the plans of a node's sources and receivers; without sources only the latter. Raises as `resolve`."""
    target = _plan_of_address(target, node, Role.SOURCE, name) or target
    if isinstance(target, NodePlan):
        plan, receiver = target, attrs.evolve(target, role=Role.RECEIVER)
    else:
        topology = _topology(target, node)
        plan = plan_node(topology, node or "")
        receiver = plan_receiver_at(topology, plan) if plan.role is Role.SOURCE else plan
    if plan.role is Role.SOURCE:
        return {one.role: _overridden(one, parameters) for one in (plan, receiver)}
    return {Role.RECEIVER: resolve(plan, None, Role.RECEIVER, parameters)}


def _plan_of_address(target: Target, node: str | None, role: Role, name: str | None) -> NodePlan | None:
    """Return the plan of a node for an address; None for another target. Raises `UsageError` for the other's name."""
    if not isinstance(target, str) or not is_url(target):
        if name is not None:
            raise UsageError("name= is for an address", remedy="with a topology, choose one of its nodes: node=...")
        return None
    if node is not None:
        raise UsageError("node= is for a topology, and an address has none", remedy=f"name={node!r} gives a name")
    return plan_url(target, role, name)


def _topology(target: str | Path | Topology, node: str | None) -> Topology:
    topology = target if isinstance(target, Topology) else load_checked(Path(target))
    if node is None:
        raise UsageError("a topology file has many nodes", remedy="name one of them: node=...")
    return topology


def _overridden(plan: NodePlan, parameters: Mapping[str, Any]) -> NodePlan:
    if not parameters:
        return plan
    values: dict[str, Any] = {}
    for key, value in parameters.items():
        name = current_parameter(key)
        if name not in ROWS:
            raise _no_parameter(key, plan.role)
        values[name] = ROWS[name].take(value)
    return attrs.evolve(plan, parameters=attrs.evolve(plan.parameters, **values))


def _no_parameter(key: str, role: Role) -> UsageError:
    """Return the error for an unknown keyword: an argument of another opener, or a misspelt one."""
    arguments = _arguments(open_source if role is Role.SOURCE else open_receiver)
    if key in _BLOCKING:
        return UsageError(f"{key!r} is for busy polling", remedy="use pgm.blocking, which supports it")
    if key in arguments:
        return UsageError(f"{key!r} is not for busy polling", remedy=f"leave out {key}, or busy_poll")
    if key in _arguments(open_receiver):
        return UsageError(f"{key!r} is for receivers", remedy=f"leave out {key}")
    return UsageError(f"there is no parameter {key!r}", remedy=suggestion(key, [*ROWS, *arguments, *_BLOCKING]))


def _arguments(opener: Callable[..., Any]) -> list[str]:
    return [
        parameter.name
        for parameter in inspect.signature(opener).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]


def new_tsi(plan: NodePlan, stream: StreamPlan) -> NamedTsi:
    """Return a new TSI for a source of a stream: GSI from a name (W-13), random data-source port (W-12).

    The name is that of the topology, by which all its nodes know the source. Without a topology, and for peers of other
    implementations (no `private_options`), it is the host's.
    """
    is_known = plan.name in stream.sources
    has_own = is_known and plan.parameters_of(stream).private_options
    gsi = gsi_of(gsi_name(plan, stream, plan.name) if has_own else socket.gethostname())
    while (port := _SYSTEM_RANDOM.randrange(1024, 65_536)) == stream.data_port:
        pass
    return NamedTsi.of(gsi + port.to_bytes(2, "big"), plan.name if is_known else "")


@contextmanager
def source_parts(
    nodes: OpenNodes[N], plan: NodePlan, stream: str | None, seed: str | None, *, has_state: bool
) -> Iterator[tuple[SourceCore, OpenNode[N], BatchSender | ZeromqSender | None]]:
    """Make core, node and packer of a source. If the block fails, which makes the driver, the node is closed.

    `has_state` says that the application offers states to joiners.
    """
    chosen = stream_of(plan, stream)
    with nodes.held(plan, seed) as node:
        while not node.links.tsis.isdisjoint(_tsis_of(tsi := new_tsi(plan, chosen))):
            pass
        segments = [link.segment for link in node.links]
        started_at_ns = time.time_ns()
        signer, sealer = signer_of(plan, chosen), sealer_of(plan, chosen, tsi, started_at_ns)
        state_sealer = sealer_of(plan, chosen, state_tsi(tsi), started_at_ns) if has_state else None
        start = SourceStart(
            tsi,
            started_at_ns,
            time.monotonic_ns(),
            signer=signer,
            prover=prover_of(plan, chosen, tsi, started_at_ns, sealer),
            sealer=sealer,
            state_prover=prover_of(plan, chosen, state_tsi(tsi), started_at_ns, state_sealer) if has_state else None,
            state_sealer=state_sealer,
            control=control_keys_of(plan, (chosen,)),
            file=SourceFile.of(plan.digest, plan_digest(plan)) if plan.digest else None,
        )
        core = (snapshot_source if has_state else source_core)(plan, chosen, segments, start)
        yield core, node, packer_of(core, plan, chosen)


def _tsis_of(tsi: NamedTsi) -> tuple[Tsi, ...]:
    """Return the TSIs that a source may use, of its stream and of its further sessions."""
    states = state_tsi(tsi)
    return tsi, states, *(of(one) for one in (tsi, states) for of in (proof_tsi, key_tsi))


@contextmanager
def receiver_parts(
    nodes: OpenNodes[N],
    plan: NodePlan,
    stream: str | None,
    seed: str | None,
    subscriptions: tuple[Iterable[bytes] | None, Iterable[str] | None],
    ack: Ack,
    starts: StartPositions = BY_PARAMETERS,
) -> Iterator[tuple[ReceiverCore, OpenNode[N], StreamDecoders, SessionReassemblers, AckPositions]]:
    """Make the parts of a receiver on any surface. If the block fails, which makes the driver, the node is closed."""
    streams = plan.streams if stream is None else (stream_of(plan, stream),)
    require_reader(plan, streams)
    with nodes.held(plan, seed) as node:
        rng = random.Random(_SYSTEM_RANDOM.random())
        ports = unordered_ports(streams)
        positions = AckPositions(ack, ports, plan.parameters.max_sessions, node.acks)
        segments = [link.segment for link in node.links]
        signers = with_codes(signers_of(streams, plan), plan, streams)
        core = receiver_core(plan, streams, segments, rng, positions, starts, signers)
        decoders = StreamDecoders.of(core, plan, streams, *subscriptions)
        yield core, node, decoders, SessionReassemblers(core.parameters, ports), positions


def receiving_driver(
    core: ReceiverCore, reads: TrioReads, application: Application, parameters: Parameters
) -> TrioDriver:
    """Make the driver of a receiver, with the read moderation of its parameters."""
    return TrioDriver(core, reads, application, receiver_read_settings(parameters))


@asynccontextmanager
async def driven(driver: NodeDriver, plan: NodePlan | None = None, answer: Answer = "no") -> AsyncIterator[None]:
    """Run a driver for the length of a block. Afterwards it leaves its links.

    With a plan, the driver writes the telemetry and the tape of that plan. `answer` says whether it answers `pgm status` and `pgm
    ctl` meanwhile, as in `open_source`.
    """
    driver.plan = plan
    observation = nullcontext() if plan is None else observing(plan, driver)
    try:
        with taping_of(plan, driver), observation:
            async with current_loop().open_background() as tasks:
                if plan is not None and answer != "no":
                    await tasks.start(_answer, plan, driver, answer)
                tasks.start_soon(driver.run)
                yield
    finally:
        driver.leave()


async def _answer(
    plan: NodePlan, driver: NodeDriver, answer: Answer, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer for the node, once no other of its endpoints does. Raises `ProcessError` if another process does."""
    started_ns, is_next = driver.now_ns(), driver.reads.answers.locked()
    if is_next:
        task_status.started()
    async with driver.reads.answers, current_loop().open_tasks() as tasks:
        try:
            await start_answering(tasks, plan, driver, lambda: snapshot_of(plan, driver, started_ns))
        except ProcessError:
            if answer == "yes" and not is_next:
                raise
        if not is_next:
            task_status.started()


def _answer_of(answer: Answer, target: Target) -> Answer:
    """Return the checked value of `answer`; "no" for a URL. Raises `UsageError`."""
    if answer not in (known := get_args(Answer)):
        raise UsageError(f"answer={answer!r} is unknown", remedy=f"choose one of {', '.join(known)}")
    if isinstance(target, str) and is_url(target):
        if answer == "yes":
            raise UsageError("an address names no node that could answer", remedy="use a topology file")
        return "no"
    return answer


@opening
async def open_source(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    stream: str | None = None,
    snapshot: SnapshotState | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    answer: Answer = "no",
    seed: str | None = None,
    **parameters: Unpack[SourceParameters],
) -> AsyncIterator[Source]:
    """Open a source of one stream.

    Example: `async with pgm.open_source("tree.toml", node="exchange", stream="quotes")`.

    With an address in place of a file, `name` is the name of this node.

    `snapshot` returns the application's state in octets, for receivers with `start="snapshot"`. The state must cover
    exactly the messages of all sends that have returned. The call comes between two calls of the application, from the
    event loop or at the start of the next send or `flush`. So the application changes its state after a send, without
    an await in between.

    With `answer="yes"` the source answers `pgm status` and `pgm ctl` as a node of `pgm run` does, for all sources and
    receivers of the node in this process. With "if-free" it does so unless another process does already. Changes by
    `pgm ctl` come as notices. Without `on_notice` the logger `pgm` gets all notices.

    A normal end of the block sends the remaining data, then FIN, and serves repairs until no NAK comes any more. An
    exception cuts the stream short, and receivers are told so. Raises `TopologyError`, `UsageError`, `TransportError`.
    """
    plan, answer = resolve(target, node, Role.SOURCE, parameters, name), _answer_of(answer, target)
    surface = new_surface()
    giver = SnapshotGiver(snapshot)
    with source_parts(surface.nodes, plan, stream, seed, has_state=snapshot is not None) as (core, opened, packer):
        outbox = SourceOutbox(packer, handler_of(on_notice, plan.name, stream), surface.waits.wake, giver)
        driver = surface.drive(core, opened.reads, outbox, ReadSettings(wake_ivl=plan.parameters.rx_wake_ivl))
    async with driven(driver, plan, answer):
        source = Source(core, driver, packer, surface.waits, giver)
        try:
            async with _giving_states(source, is_idle_safe=snapshot is not None and not surface.is_called_by_threads):
                yield source
                await source.aclose()
        except BaseException:
            driver.perform(core.abort(driver.now_ns()))
            raise


@asynccontextmanager
async def _giving_states(source: Source, *, is_idle_safe: bool) -> AsyncIterator[None]:
    """Give states of an idle application, too, unless its threads may be in the middle of a change."""
    if not is_idle_safe:
        yield
        return
    async with current_loop().open_background() as tasks:
        tasks.start_soon(source.give_states)
        yield


@contextmanager
def _leaving(
    core: ReceiverCore, driver: NodeDriver, positions: AckPositions, inbox: Inbox, surface: Surface
) -> Iterator[None]:
    """Let a receiver leave its streams behind a block, however the block ends."""
    try:
        yield
    finally:
        try:
            driver.perform(core.leave(driver.now_ns()))
        finally:
            positions.close()
            inbox.close()
            surface.close()


@opening
async def open_receiver(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    stream: str | None = None,
    subscribe: Iterable[bytes] | None = None,
    subjects: Iterable[str] | None = None,
    start: Start = None,
    durable: str | Path | None = None,
    archive: str | Sequence[str] | None = None,
    on_loss: OnLoss = "report",
    slow: Slow = "block",
    ack: Ack = "auto",
    on_notice: Callable[[Notice], None] | None = None,
    answer: Answer = "no",
    seed: str | None = None,
    **parameters: Unpack[ReceiverParameters],
) -> AsyncIterator[Receiver]:
    """Open a receiver, which is then iterated over.

    Example: `async with pgm.open_receiver("tree.toml", node="desk-7", stream="quotes")`.

    With an address in place of a file, `name` is the name of this node, by which `to=` of a source reaches it.

    Without `stream` it takes every stream of the node. `subscribe` is for streams with ZeroMQ's framing: the prefixes
    of the messages to take, all messages if None, none if it is empty. `subjects` is the same for streams with batches,
    by patterns of subjects: `/nasdaq/*`, `/nasdaq/...`.

    `start` is the position at which a late joiner begins: "now", "oldest", "last:1000" packets, "last:30s" or a sqn;
    "snapshot" gives a `Snapshot` of the source's application first, and the stream from exactly there (`SnapshotError` without one);
    None leaves it to the topology. `durable` is the name, or the path with a slash, of a file: the receiver writes to it
    what the application has taken, and continues there. An application that stores `receiver.position` itself gives its
    positions to `start`, an empty list at first. `archive` has addresses of range services, HOST:PORT, by
    default those of the topology: what no repairer holds comes from there. `on_loss` is "report", "resync" (skip to the newest) or "raise" (`LossError`).
    `slow` is the policy once the application is behind by `inbox_bytes`: "block", "drop-oldest", "drop-newest" or
    "close". `ack` says when an item of an acknowledged stream counts as processed: "auto", when the application comes
    back for the next item or leaves the block without an exception; "manual", when it calls `receiver.ack(item)`.
    `answer` is as in `open_source`.

    Raises `TopologyError`, `UsageError`, `TransportError`, and `ProcessError` for a durable name in use.
    """
    policies, answer = Policies.of(on_loss, slow, ack), _answer_of(answer, target)
    plan = resolve(target, node, Role.RECEIVER, {**start_parameters(start), **parameters}, name)
    surface = new_surface()
    with earlier_life(durable, start, archive, policies, plan, stream) as life:
        starts = BY_PARAMETERS if life is None else life.memory
        parts = receiver_parts(surface.nodes, plan, stream, seed, (subscribe, subjects), ack, starts)
        with parts as (core, opened, decoders, reassemblers, positions):
            on_notice = handler_of(on_notice, plan.name, stream)
            is_plain = decoders.is_plain and life is None
            inbox = Inbox(core, reassemblers, on_notice, surface.waits.wake, policies, is_plain=is_plain)
            driver = surface.drive(core, opened.reads, inbox, receiver_read_settings(plan.parameters))
        async with driven(driver, plan, answer):
            surface.read_in_waits(inbox, plan.parameters)
            with resuming(life, core, inbox, positions) as queue, _leaving(core, driver, positions, inbox, surface):
                receiver = Receiver(core, driver, queue, surface.waits, decoders, policies, positions)
                yield receiver
                receiver.finish()
