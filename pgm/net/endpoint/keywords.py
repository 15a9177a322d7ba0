"""Types of the openers' arguments, for `pgm.blocking` and for programs that pass arguments on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict

from pgm.core.effects import Notice
from pgm.net.endpoint.parameter_types import ReceiverParameters, SourceParameters
from pgm.net.endpoint.policies import OnLoss, Slow
from pgm.net.endpoint.start_position import Start

Answer = Literal["no", "if-free", "yes"]


class _CommonKeywords(TypedDict, total=False):
    node: str | None
    name: str | None
    stream: str | None
    on_notice: Callable[[Notice], None] | None
    answer: Answer
    seed: str | None


class SourceKeywords(_CommonKeywords, SourceParameters, total=False):
    """Keyword arguments of `open_source`."""


class ReceiverKeywords(_CommonKeywords, ReceiverParameters, total=False):
    """Keyword arguments of `open_receiver`."""

    subscribe: Iterable[bytes] | None
    subjects: Iterable[str] | None
    start: Start
    on_loss: OnLoss
    slow: Slow
