"""Types of the openers' arguments, for `pgm.blocking` and for programs that pass arguments on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from pgm.core.effects import Notice
from pgm.net.endpoint.parameter_types import ReceiverParameters, SourceParameters
from pgm.net.endpoint.policies import Ack, OnLoss, Slow
from pgm.net.endpoint.source import SnapshotState
from pgm.net.endpoint.start_position import Start

Answer = Literal["no", "if-free", "yes"]


class _NodeKeywords(TypedDict, total=False):
    node: str | None
    name: str | None
    seed: str | None


class NodeParameters(SourceParameters, ReceiverParameters, total=False):
    """Parameters of `open_node`, which apply to its sources and receivers."""


class NodeKeywords(_NodeKeywords, NodeParameters, total=False):
    """Keyword arguments of `open_node`."""


class _EndpointKeywords(TypedDict, total=False):
    on_notice: Callable[[Notice], None] | None
    answer: Answer


class NodeSourceKeywords(_EndpointKeywords, SourceParameters, total=False):
    """Keyword arguments of a node's `source`, beside the stream."""

    snapshot: SnapshotState | None


class NodeReceiverKeywords(_EndpointKeywords, ReceiverParameters, total=False):
    """Keyword arguments of a node's `receiver`, beside the stream."""

    subscribe: Iterable[bytes] | None
    subjects: Iterable[str] | None
    start: Start
    durable: str | Path | None
    archive: str | Sequence[str] | None
    on_loss: OnLoss
    slow: Slow
    ack: Ack


class SourceKeywords(_NodeKeywords, NodeSourceKeywords, total=False):
    """Keyword arguments of `open_source`."""

    stream: str | None


class ReceiverKeywords(_NodeKeywords, NodeReceiverKeywords, total=False):
    """Keyword arguments of `open_receiver`."""

    stream: str | None
