"""Handlers of notices that send by a busy-poll source: without nested turns, and in order."""

from __future__ import annotations

import inspect
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import pgm.blocking
from pgm import Message, UsageError
from pgm.core.effects import Effect, Effects, Notice, Send
from pgm.net.endpoint.busy_poll import BusyPollSource
from pgm.wire.formats import PacketType
from tests.net.support.places import Place

NOTICES = 400  # far more than calls may be nested, at some six for a send in a send
PATIENCE_S = 20.0
_SQN_AT, _TYPE_AT = 16, 4


class _Told:
    """Source whose core emits a notice at each of its first deadlines, before the data it sends."""

    def __init__(self, source: BusyPollSource, most: int, patch: pytest.MonkeyPatch) -> None:
        self.left = most
        self.sqns: list[int] = []  # of data, as they went to the link
        core, link = source.driver.core, source.links[0]
        serve, send, send_packet = core.handle_deadline, link.send, link.send_packet

        def telling(now_ns: int) -> Effects:
            effects: list[Effect] = list(serve(now_ns))
            if self.left:
                self.left -= 1
                effects.insert(0, Notice("test", "something happened"))
            return effects

        def noted(sent: Send, at: int = 0) -> None:
            if sent.is_data:
                octets = bytes(sent.octets)
                for first in range(at, len(octets), sent.stride):
                    self._note(octets[first:])
            send(sent, at)

        def noted_alone(packet: bytes) -> bool:
            self._note(packet)
            return send_packet(packet)

        patch.setattr(core, "handle_deadline", telling)
        patch.setattr(link, "send", noted)
        patch.setattr(link, "send_packet", noted_alone)

    def _note(self, packet: bytes) -> None:
        if packet[_TYPE_AT] == PacketType.ODATA:
            self.sqns += struct.unpack_from(">I", packet, _SQN_AT)


class _Handler:
    """Handler that sends a message at every notice."""

    def __init__(self, size: int = 8) -> None:
        self.source: BusyPollSource | None = None
        self.sent: list[bytes] = []
        self.numbers: list[int] = []
        self.depths: list[int] = []
        self._size = size

    def __call__(self, notice: Notice) -> None:
        if self.source is not None and notice.code == "test":
            self.depths.append(len(inspect.stack(0)))
            message = (b"in %d" % len(self.sent)).ljust(self._size)
            self.numbers.append(self.source.send(message))
            self.sent.append(message)


@contextmanager
def telling_source(
    place: Place, patch: pytest.MonkeyPatch, handler: _Handler, notices: int, **parameters: object
) -> Iterator[tuple[BusyPollSource, _Told]]:
    url = place.url(fin_quiet_ivl="100ms", **parameters)
    with pgm.blocking.open_source(url, busy_poll=True, on_notice=handler) as source:
        handler.source = source
        with patch.context() as inner:
            yield source, _Told(source, notices, inner)


@pytest.mark.parametrize("is_batch", [True, False])
def test_a_handler_that_sends_goes_no_deeper_each_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_batch: bool
) -> None:
    """Every message of a handler causes another notice, which makes the handler send again."""
    handler = _Handler()
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        telling_source(place, monkeypatch, handler, NOTICES) as (source, told),
    ):
        outside = [b"out %d" % number for number in range(20)]
        if is_batch:
            source.send_batch(outside)
        else:
            for message in outside:
                source.send(message)
        got: list[Message] = []
        while len(got) < NOTICES + len(outside):
            item = receiver.recv(PATIENCE_S)
            assert item is not None
            got += [item] if isinstance(item, Message) else []
        assert len(handler.sent) == NOTICES
        assert max(handler.depths) < min(handler.depths) + 20
        assert [item.payload for item in got if item.payload.startswith(b"in")] == handler.sent
        assert [item.sqn for item in got if item.payload.startswith(b"in")] == handler.numbers
        assert [item.payload for item in got if item.payload.startswith(b"out")] == outside
        assert told.sqns == list(range(len(got)))
        assert not source.counters.rdata_packets


def test_callbacks_sends_of_a_handler_keep_their_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call to the core emits a notice and data.

    That data precedes the handler's, and all is with the kernel at its end.
    """
    handler = _Handler()
    with telling_source(place, monkeypatch, handler, 1) as (source, told):
        assert source.send_batch([b"one", b"two"]) == 0
        assert handler.numbers == [2]
        assert told.sqns == [0, 1, 2]


def test_callbacks_sends_held_by_the_rate_go_with_next_turns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = _Handler(size=1000)
    with telling_source(place, monkeypatch, handler, 30, rate="1Mbit/s", txw_burst_ivl="1ms") as (source, told):
        source.poll()
        until = time.monotonic() + PATIENCE_S
        while len(told.sqns) < 30:
            source.poll()
            assert time.monotonic() < until
        assert told.sqns == handler.numbers == list(range(30))


@pytest.mark.parametrize("call", ["send", "send_batch"])
def test_a_handler_may_not_send_what_would_have_to_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    parameters = {"rate": "1Mbit/s", "txw_unsent_bytes": "64KiB"}
    refused: list[UsageError] = []

    class Eager(_Handler):
        def __call__(self, notice: Notice) -> None:
            if self.source is None or notice.code != "test":
                return
            rows = np.zeros((100, 1000), np.uint8)
            self.numbers.append(self.source.send_batch(rows))
            before = self.source.next_sqn
            try:
                self.source.send(bytes(8)) if call == "send" else self.source.send_batch(rows)
            except UsageError as error:
                refused.append(error)
            assert self.source.next_sqn == before

    handler = Eager()
    with telling_source(place, monkeypatch, handler, 1, **parameters) as (source, told):
        source.send_batch([b"one"])
        assert "cannot wait" in str(refused[0])
        assert source.send(b"waits") == 101
        assert told.sqns == list(range(102))
