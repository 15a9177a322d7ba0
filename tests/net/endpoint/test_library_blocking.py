"""The blocking endpoints, without trio, over real multicast on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Batch, CloseCause, Closed, Message, Opened
from pgm.errors import UnitError
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S
from tests.net.support.opened import bound_socket, messages_of_sizes, open_files
from tests.net.support.places import Place, one_segment


def test_blocking_source_and_receiver(place: Place) -> None:
    topology = loads(one_segment(place, loss='{ loss = "5%" }'))
    sent = messages_of_sizes([1000] * 500 + [0, 40_000])
    got: list[object] = []
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:

        def take() -> None:
            for item in receiver:
                got.append(item)
                if isinstance(item, Closed):
                    break

        taker = threading.Thread(target=take)
        taker.start()
        with pgm.blocking.open_source(topology, node="source") as source:
            assert source.send(sent[0]) == 0
            assert source.send_batch(sent[1:]) == 1
            source.flush()
        taker.join(PATIENCE_S)
        assert not taker.is_alive()
    assert [one.payload for one in got if isinstance(one, Message)] == sent
    assert isinstance(got[-1], Closed)
    assert got[-1].cause is CloseCause.FIN
    assert source.counters.odata_packets == receiver.counters.delivered_packets


def test_blocking_batches_and_time_limit(place: Place) -> None:
    topology = loads(one_segment(place))
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        began = time.monotonic()
        assert receiver.next_batch(0.05) is None
        assert 0.05 <= time.monotonic() - began < PATIENCE_S
        with pgm.blocking.open_source(topology, node="source") as source:
            source.send_batch(np.arange(64, dtype=np.uint8).reshape(8, 8))
            rows = []
            for item in receiver.batches():
                if isinstance(item, Batch):
                    rows.append(item.copy().payloads)
                    if sum(map(len, rows)) == 8:
                        break
    assert np.concatenate(rows).tobytes() == bytes(range(64))


@pytest.mark.parametrize("busy_poll", [False, True])
def test_a_time_limit_holds_while_only_what_is_not_wanted_comes(place: Place, busy_poll: bool) -> None:
    """Unwanted messages come all the time, from a source that does not wait.

    A call takes no longer than its timeout, or than the data needs that waits when it begins.
    """
    text = one_segment(place, rate="200Mbit/s").replace("data_port = 7500", 'data_port = 7500\nframing = "batch"')
    topology, is_over = loads(text), threading.Event()
    options: dict[str, Any] = {"busy_poll": True} if busy_poll else {}

    def send() -> None:
        with pgm.blocking.open_source(topology, node="source") as source:
            while not is_over.is_set():
                source.send_batch(np.zeros((2000, 70), np.uint8), subject="/other")

    sender = threading.Thread(target=send)
    with pgm.blocking.open_receiver(topology, node="desk-1", subjects=["/wanted"], **options) as receiver:
        sender.start()
        try:
            assert isinstance(receiver.next_batch(PATIENCE_S), Opened)
            delivered = receiver.counters.delivered_packets
            for limit_s in (0.2, 0, 0.05, 0):
                began = time.monotonic()
                assert receiver.next_batch(limit_s) is None
                assert limit_s <= time.monotonic() - began < PATIENCE_S / 4
            assert receiver.counters.delivered_packets > delivered
        finally:
            is_over.set()
        while not isinstance(receiver.next_batch(PATIENCE_S), Closed):
            pass
        sender.join()


@pytest.mark.parametrize("busy_poll", [False, True])
def test_blocking_surfaces_have_all_calls_and_properties(place: Place, busy_poll: bool) -> None:
    topology = loads(one_segment(place))
    options: dict[str, Any] = {"busy_poll": True} if busy_poll else {}
    with pgm.blocking.open_receiver(topology, node="desk-1", **options) as receiver:
        with pgm.blocking.open_source(topology, node="source", **options) as source:
            assert source.try_send(b"one") == 0
            with pytest.raises(pgm.UsageError, match="not acknowledged"):
                source.joined(1)
            while not isinstance(receiver.recv(PATIENCE_S), Message):
                pass
            assert receiver.known_sources == 1
            assert [row.tsi for row in receiver.sessions] == [row.tsi for row in source.sessions]
            assert source.max_apdu == source.parameters.max_apdu
        with pytest.raises(pgm.UsageError, match="closed"):
            _ = source.sessions


def test_blocking_calls_raise_in_the_thread_that_called(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(pgm.TopologyError, match="no node 'nobody'"), pgm.blocking.open_source(topology, node="nobody"):
        pass
    with pytest.raises(pgm.UsageError, match="is receiver"), pgm.blocking.open_source(topology, node="desk-1"):
        pass
    with pgm.blocking.open_source(topology, node="source", max_apdu=1000) as source:
        with pytest.raises(pgm.UsageError):
            source.send(bytes(2000))
        with (
            bound_socket(place.address(100), place.port),
            pytest.raises(pgm.TransportError),
            pgm.blocking.open_receiver(topology, node="desk-1"),
        ):
            pass
        source.send(bytes(1000))


def test_a_blocking_source_left_by_an_exception_resets(place: Place) -> None:
    topology = loads(one_segment(place))

    def send_and_fail() -> None:
        with pgm.blocking.open_source(topology, node="source") as source:
            source.send(b"x")
            source.flush()
            _ = 1 / 0

    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        with pytest.raises(ZeroDivisionError):
            send_and_fail()
        items = []
        for item in receiver:
            items.append(item)
            if isinstance(item, Closed):
                break
    assert [type(one) for one in items] == [Opened, Message, Closed]
    assert items[-1].cause is CloseCause.RESET


def test_blocking_handles_leave_no_thread_behind(place: Place) -> None:
    topology = loads(one_segment(place))
    before, files = threading.active_count(), open_files()
    with pgm.blocking.open_receiver(topology, node="desk-1"), pgm.blocking.open_source(topology, node="source"):
        assert threading.active_count() >= before + 2
    assert [one.name for one in threading.enumerate() if one.name == "pgm"] == []
    assert open_files() == files


def test_a_blocking_call_after_the_block_says_so(place: Place) -> None:
    topology = loads(one_segment(place))
    with pgm.blocking.open_source(topology, node="source") as source:
        source.send(b"x")
    with pytest.raises(pgm.UsageError):
        source.send(b"y")
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        pass
    with pytest.raises(pgm.UsageError):
        receiver.next_batch(0)


def test_a_blocking_loop_that_was_left_goes_on_where_it_stopped(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = [b"%03d" % number for number in range(200)]
    got: list[bytes] = []
    with (
        pgm.blocking.open_receiver(topology, node="desk-1") as receiver,
        pgm.blocking.open_source(topology, node="source") as source,
    ):
        source.send_batch(sent)
        while len(got) < 100:
            got.append(next(item.payload for item in receiver if isinstance(item, Message)))
        for found in receiver.batches():
            assert isinstance(found, Batch)
            got += found
            if len(got) == len(sent):
                break
    assert got == sent


@pytest.mark.parametrize("busy_poll", [False, True])
def test_a_program_changes_the_rate_of_its_source(place: Place, busy_poll: bool) -> None:
    """The rate is at most that of the topology, and sending takes at least the time that the rate implies."""
    topology = loads(one_segment(place, rate="400Mbit/s"))
    options: dict[str, Any] = {"busy_poll": True} if busy_poll else {}
    with pgm.blocking.open_source(topology, node="source", **options) as source:
        assert source.rate == 50_000_000
        source.set_rate("8Mbit/s")
        assert source.rate == 1_000_000
        began = time.monotonic()
        source.send_batch(np.zeros((300, 1000), np.uint8))
        source.flush()
        assert time.monotonic() - began > 0.28  # 300 packets of 1024 octets, less the content of the bucket
        for wrong in ("800Mbit/s", 1, "8"):
            with pytest.raises((pgm.UsageError, UnitError)):
                source.set_rate(wrong)
        source.set_rate("start")
        assert source.rate == 50_000_000


@pytest.mark.parametrize("busy_poll", [False, True])
@pytest.mark.parametrize("framing", ["plain", "batch", "zeromq"])
def test_source_text_as_message_says_what_to_send(place: Place, framing: str, busy_poll: bool) -> None:
    options: dict[str, Any] = {"busy_poll": True} if busy_poll else {}
    with pgm.blocking.open_source(place.url(framing=framing), fin_quiet_ivl=0, **options) as source:
        for wrong in ("text", 5, {"a": 1}):
            for send in (source.send, source.try_send, lambda payload: source.send_batch([b"", payload])):
                with pytest.raises(pgm.UsageError, match=r"(?s)is no message.*encode\(\).*send_object"):
                    send(wrong)
        assert source.send(b"text") == 0


@pytest.mark.parametrize(
    ("opener", "options", "says"),
    [
        (pgm.open_source, {"cpu": 0}, "'cpu' is for busy polling.*use pgm.blocking"),
        (pgm.open_receiver, {"busy_poll": True}, "'busy_poll' is for busy polling.*use pgm.blocking"),
        (pgm.open_source, {"subjects": ["/a"]}, "'subjects' is for receivers.*leave out subjects"),
        (pgm.open_source, {"on_lose": "raise"}, "no parameter 'on_lose'.*did you mean 'on_notice'"),
        (pgm.open_receiver, {"on_lose": "raise"}, "no parameter 'on_lose'.*did you mean 'on_loss'"),
        (pgm.blocking.open_source, {"busy_poll": True, "answer": "no"}, "'answer' is not for busy polling.*leave"),
        (pgm.blocking.open_receiver, {"busy_poll": True, "slow": "block", "sed": "1"}, "'sed'.*did you mean 'seed'"),
        (pgm.blocking.open_receiver, {"busy_pol": True}, "'busy_pol'.*did you mean 'busy_poll'"),
    ],
)
def test_library_misplaced_keyword_names_the_right_opener(
    place: Place, opener: Callable[..., Any], options: dict[str, Any], says: str
) -> None:
    """The remedy never names the keyword that was just refused."""

    async def use() -> None:
        async with opener(place.url(), **options):
            pass

    def use_blocking() -> None:
        with opener(place.url(), **options):
            pass

    is_blocking = opener not in (pgm.open_source, pgm.open_receiver)
    with pytest.raises(pgm.UsageError, match=f"(?s){says}"):
        use_blocking() if is_blocking else trio.run(use)


def test_library_former_keyword_is_taken_with_a_warning(place: Place) -> None:
    with (
        pytest.warns(DeprecationWarning, match="rx_park_ivl is now rx_block_ivl"),
        pgm.blocking.open_receiver(place.url(), rx_park_ivl="2ms", busy_poll=True) as receiver,
    ):
        assert receiver.parameters.rx_block_ivl == 2_000_000
