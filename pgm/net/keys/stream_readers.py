"""Readers of sealed streams: the nodes that may decrypt them, by the topology file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import KeyRecordSession
from pgm.core.source.snapshots import StateSession
from pgm.core.source.source import SourceCore
from pgm.core.source_names import node_of
from pgm.errors import KeyRefused, UsageError
from pgm.net.keys.start_check import own_keys, today
from pgm.topology.check import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.topology.plan import plan_node
from pgm.trust.public_keys import PublicKeys

if TYPE_CHECKING:
    from pgm.trust.private_keys import PrivateKeys


def is_reader(keys: PrivateKeys, stream: StreamPlan) -> bool:
    """Return whether the owner of keys may read a sealed stream."""
    return stream.readers is not None and any(one.id == keys.public.id for one in stream.readers)


def require_reader(plan: NodePlan, streams: Sequence[StreamPlan]) -> None:
    """Raise `KeyRefused` if a receiver may not read one of some streams."""
    for stream in streams:
        if stream.readers is None:
            continue
        keys = own_keys(plan)
        if keys is None:
            raise KeyRefused(
                f"the stream {stream.name} is sealed, and {plan.name} has no keys",
                remedy=f"make keys: pgm keys new FILE --node {plan.name} --write, and copy the file to the source",
            )
        if not is_reader(keys, stream):
            raise KeyRefused(
                f"{plan.name} is no reader of the sealed stream {stream.name}",
                remedy=f"add {plan.name} to the readers of {stream.name}, and give the source the same file",
            )


def members_of(stream: StreamPlan) -> tuple[PublicKeys, ...]:
    """Return the keys to which a source gives the secret of a sealed stream: those that are or will be valid."""
    day = today()
    return tuple(keys for keys in stream.readers or () if day < keys.end_day)


def change_readers(core: SourceCore, target: str | Path | Topology) -> int:
    """Seal later messages by a new secret, for the readers that a topology names. Return the first sqn of the secret.

    Raises `UsageError` for a stream in the clear, `TopologyError` for a file that breaks rules, and `OSError`.
    """
    if core.setup.sealer is None:
        raise UsageError("the stream of this source is not sealed", remedy="write sealed = true at the stream")
    core.require_open()
    topology = target if isinstance(target, Topology) else load_checked(Path(target))
    plan = plan_node(topology, node_of(core.setup.tsi))
    stream = next((one for one in plan.streams if one.data_port == core.setup.data_port), None)
    if stream is None or not (members := members_of(stream)):
        raise UsageError(
            f"the topology {topology.path} names no reader of this source's stream",
            remedy="write sealed = true at the stream, and keys of its receivers",
        )
    first = core.window.next_sqn
    change_secret(core, members)
    return first


def change_secret(core: SourceCore, members: Sequence[PublicKeys]) -> None:
    """Seal what a source sends from now on by a new secret for some members: its stream, and its states."""
    from pgm.trust.stream_secrets import StreamSealer

    if not isinstance(core, CompanionSource):
        return
    if isinstance(core.setup.sealer, StreamSealer):
        core.setup.sealer.change(members, core.window.next_sqn)
    for records in core.companions_of(KeyRecordSession):
        records.restart()
    for states in core.companions_of(StateSession):
        change_secret(states.core, members)
