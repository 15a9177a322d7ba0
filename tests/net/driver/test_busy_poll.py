"""Busy-poll driver on real sockets.

Everything runs in the calling thread, and only while a call waits (SRC-03).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import pgm.blocking
from pgm import Batch, CloseCause, Closed, Lost, Message, Opened, UsageError
from pgm.core.effects import Send, alone
from pgm.errors import PayloadTooLarge
from pgm.impairments import Impairment, Injector
from pgm.net.endpoint.busy_poll import BusyPollReceiver
from pgm.net.endpoint.inbox import OCTETS_BETWEEN_READS
from pgm.net.link.link import Link, WouldBlock
from pgm.topology.load import loads
from pgm.units import MILLISECOND
from tests.net.link.test_read_gathering import sender
from tests.net.support.backlog import BACKLOG, BACKLOG_PACKETS, knock
from tests.net.support.lab import lab, needs_namespaces
from tests.net.support.places import Place, one_segment

PATIENCE_S = 20.0
SIZES = [0, 1, 7, 70, 1400, 1448, 1449, 10_000, 100_001, 1_000_000, 0, 3]


def messages_of_sizes(sizes: list[int], seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


def take(receiver: BusyPollReceiver, until: Callable[[list[object]], bool]) -> list[object]:
    """Return received items until a condition holds for them."""
    items: list[object] = []
    give_up = time.monotonic() + PATIENCE_S
    while not until(items):
        item = receiver.recv(PATIENCE_S)
        assert item is not None, items
        assert time.monotonic() < give_up, items
        items.append(item)
    return items


def payloads(items: list[object]) -> list[bytes]:
    return [item.payload for item in items if isinstance(item, Message)]


def has_messages(count: int) -> Callable[[list[object]], bool]:
    return lambda items: sum(isinstance(item, Message) for item in items) >= count


def is_closed(items: list[object]) -> bool:
    return bool(items) and isinstance(items[-1], Closed)


def test_one_thread_owns_a_source_and_a_receiver(place: Place) -> None:
    threads = threading.active_count()
    sent = messages_of_sizes(SIZES)
    topology = loads(one_segment(place))
    with (
        pgm.blocking.open_receiver(topology, node="desk-1", busy_poll=True) as receiver,
        pgm.blocking.open_source(topology, node="source", busy_poll=True) as source,
    ):
        numbers = [source.send(message) for message in sent]
        items = take(receiver, has_messages(len(sent)))
        assert threading.active_count() == threads
    assert payloads(items) == sent
    assert [item.sqn for item in items if isinstance(item, Message)] == numbers
    assert isinstance(items[0], Opened)


def test_busy_poll_send_reaches_the_kernel_before_it_returns(place: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((place.group(), place.port))
        membership = socket.inet_aton(place.group()) + socket.inet_aton("127.0.0.1")
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        listener.setblocking(False)
        with pgm.blocking.open_source(place.url(fin_quiet_ivl="100ms"), busy_poll=True) as source:
            source.send(b"now")
            packets = [listener.recv(2000), listener.recv(2000)]
            assert packets[1].endswith(b"now")  # behind the first SPM
            source.send_batch([b"%d" % number for number in range(200)])
            assert source.counters.odata_packets == 201
            assert sum(1 for _ in range(200) if listener.recv(2000)) == 200


def test_losses_are_repaired_while_either_waits(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([1000] * 600)
    with (
        pgm.blocking.open_receiver(topology, node="desk-1", busy_poll=True) as receiver,
        pgm.blocking.open_source(topology, node="source", busy_poll=True) as source,
    ):
        receiver.links[0].injector = Injector(Impairment(loss=0.2), "test")
        for at in range(0, 600, 20):
            source.send_batch(sent[at : at + 20])
            receiver.poll()
        items = take(receiver, has_messages(600))
        assert receiver.counters.repaired_sqns > 50
        assert source.counters.rdata_packets >= receiver.counters.repaired_sqns
    assert payloads(items) == sent


def test_batches_come_as_arrays(place: Place) -> None:
    rows = np.arange(300 * 64, dtype=np.uint8).reshape(300, 64)
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="100ms"), busy_poll=True) as source,
    ):
        assert source.send_batch(rows) == 0
        assert source.send_batch(rows[:0]) == 300
        got: list[np.ndarray] = []
        for item in receiver.batches():
            if isinstance(item, Batch):
                got.append(item.payloads.copy())
            if sum(map(len, got)) == 300:
                break
        assert receiver.next_batch(0) is None
    assert np.array_equal(np.concatenate(got), rows)


def test_single_packets_of_several_sizes_that_wait_are_all_read(place: Place) -> None:
    """Packets that a read holds back do not wait for later packets."""
    sent = messages_of_sizes([100, 100, 200, 150, 150, 1000, 999, 10, 1000])
    parameters = {"gso": False, "fin_quiet_ivl": "100ms", "ambient_spm_ivl": "60s", "ihb_min": "60s", "ihb_max": "60s"}
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(), busy_poll=True, **parameters) as source,
    ):
        for _ in range(20):
            for message in sent:
                source.send(message)
            assert payloads(take(receiver, has_messages(len(sent)))) == sent


def test_two_senders_by_turns_do_not_keep_a_turn_from_ending(place: Place) -> None:
    """The next packet never fits the train of the one before it; timers must still get their turn."""
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        sender(place.address(1)) as one,
        sender(place.address(2)) as other,
    ):
        for number in range(500):
            (one, other)[number % 2].sendto(bytes(30), (place.group(), place.port))
        turns = []
        while receiver.counters.packets_in < 500:
            before = receiver.counters.packets_in
            receiver.poll()
            turns.append(receiver.counters.packets_in - before)
        assert max(turns) < 50


def test_a_loop_left_early_goes_on_where_it_stopped(place: Place) -> None:
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="100ms"), busy_poll=True) as source,
    ):
        source.send_batch([b"a", b"b", b"c", b"d"])
        for item in receiver:
            if isinstance(item, Message) and item.payload == b"b":
                break
        rest = receiver.next_batch(PATIENCE_S)
        assert isinstance(rest, Batch)
        assert list(rest) == [b"c", b"d"]


def test_nothing_comes_within_the_timeout(place: Place) -> None:
    with pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver:
        started = time.monotonic()
        assert receiver.recv(0) is None
        assert time.monotonic() - started < 1.0
        assert receiver.recv(0.2) is None
        assert time.monotonic() - started >= 0.2


def test_the_end_of_the_block_ends_the_stream(place: Place) -> None:
    with pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver:
        with pgm.blocking.open_source(place.url(fin_quiet_ivl="100ms"), busy_poll=True) as source:
            source.send(b"last")
        items = take(receiver, is_closed)
    assert payloads(items) == [b"last"]
    assert isinstance(items[-1], Closed)
    assert items[-1].cause is CloseCause.FIN


def _send_and_fail(place: Place) -> None:
    with pgm.blocking.open_source(place.url(), busy_poll=True) as source:
        source.send(b"only")
        raise ZeroDivisionError


def test_an_exception_cuts_the_stream_short(place: Place) -> None:
    with pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver:
        with pytest.raises(ZeroDivisionError):
            _send_and_fail(place)
        items = take(receiver, is_closed)
    assert isinstance(items[-1], Closed)
    assert items[-1].cause is CloseCause.RESET


def test_a_message_whose_call_is_interrupted_is_repaired(place: Place) -> None:
    """The message has its sqn, and may have been sent."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    # A message takes the general path while an SPM is due.
    rarely = {"fin_quiet_ivl": "100ms", "ihb_min": "9s", "ihb_max": "9s", "ambient_spm_ivl": "9s"}
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(**rarely), busy_poll=True) as source,
    ):
        source.send(b"first")
        assert payloads(take(receiver, has_messages(1))) == [b"first"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "send_packet", interrupted)
            with pytest.raises(KeyboardInterrupt):
                source.send(b"second")
        source.send(b"third")
        assert payloads(take(receiver, has_messages(2))) == [b"second", b"third"]


def test_a_source_that_does_nothing_but_send_batches_reads_too(place: Place) -> None:
    """Each batch leaves at once, so no call has to wait. All batches fit one chunk; its end would take two trains."""
    rows = np.zeros((50, 100), np.uint8)
    with (
        pgm.blocking.open_source(place.url(rate="100Gbit/s", fin_quiet_ivl="100ms"), busy_poll=True) as source,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker,
    ):
        asker.sendto(b"junk", source.links[0].sockets.own.getsockname())
        for _ in range(300):
            source.send_batch(rows)
        assert source.counters.packets_in == 1


def test_a_rate_limit_holds_and_the_call_waits_for_it(place: Place) -> None:
    """SRC-03: the source never exceeds the rate. Other load on the machine decides how far it stays below."""
    size, count = 976, 250  # 1000 octets a packet, 250 of them at 250,000 octets/s
    url = place.url(rate="2Mbit/s", fin_quiet_ivl="100ms")
    with pgm.blocking.open_source(url, busy_poll=True) as source:
        started = time.monotonic()
        for _ in range(count):
            source.send(bytes(size))
        took = time.monotonic() - started
    assert 0.95 <= took < PATIENCE_S


def test_bad_use_is_refused(place: Place) -> None:
    with pgm.blocking.open_source(place.url(fin_quiet_ivl="100ms", max_apdu="1kB"), busy_poll=True) as source:
        with pytest.raises(PayloadTooLarge):
            source.send(bytes(2000))
        with pytest.raises(UsageError, match="framing"):
            source.send_parts([b"a", b"b"])
        errors: list[BaseException] = []

        def use() -> None:
            try:
                source.send(b"from elsewhere")
            except UsageError as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert "thread" in str(errors[0])
        assert source.send(b"from here") == 0
    for call in (source.poll, source.flush, lambda: source.send(b"late"), source.close):
        with pytest.raises(UsageError, match="closed"):
            call()
    with (
        pytest.raises(UsageError, match="processor"),
        pgm.blocking.open_receiver(place.url(), busy_poll=True, cpu=100_000),
    ):
        pass
    with pytest.raises(UsageError, match="busy"), pgm.blocking.open_receiver(place.url(), cpu=0):  # type: ignore[call-overload]
        pass


def test_the_thread_is_pinned_for_the_length_of_the_block(place: Place) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    with pgm.blocking.open_receiver(place.url(), busy_poll=True, cpu=cpu):
        assert os.sched_getaffinity(0) == {cpu}
    assert os.sched_getaffinity(0) == before


def test_timers_run_while_only_the_other_one_waits(place: Place) -> None:
    """The source's heartbeats leave while its thread waits in the receiver, so peers do not take it for silent."""
    with (
        pgm.blocking.open_receiver(place.url(peer_expiry="1s", stall_ivl="300ms"), busy_poll=True) as receiver,
        pgm.blocking.open_source(
            place.url(ambient_spm_ivl="50ms", ihb_min="10ms", ihb_max="100ms", fin_quiet_ivl="100ms"), busy_poll=True
        ) as source,
    ):
        source.send(b"one")
        take(receiver, has_messages(1))
        before = source.counters.spm_packets
        assert receiver.recv(1.5) is None  # no Closed(SILENT) either
        assert source.counters.spm_packets - before >= 15


def test_zeromq_framing_works_as_in_the_other_drivers(place: Place) -> None:
    url = f"epgm://lo;{place.group()}:{place.port}"
    with (
        pgm.blocking.open_receiver(url, busy_poll=True, subscribe=[b"a"]) as receiver,
        pgm.blocking.open_source(url, busy_poll=True, fin_quiet_ivl="100ms") as source,
    ):
        source.send_parts([b"a1", b"b"])
        source.send(b"b2")
        source.send_batch([b"a3", b"a4", b"b5"])
        items = take(receiver, has_messages(3))
        receiver.unsubscribe(b"a")
        receiver.subscribe(b"c")
        source.send_batch([b"a6", b"c7"])
        more = take(receiver, has_messages(1))
    assert [item.parts for item in items if isinstance(item, Message)] == [(b"a1", b"b"), (b"a3",), (b"a4",)]
    assert payloads(more) == [b"c7"]


def _reflect(place: Place) -> None:
    """Second process of the round trip: return every message until the stream ends."""
    with (
        pgm.blocking.open_receiver(_url(place, 0), busy_poll=True) as receiver,
        pgm.blocking.open_source(_url(place, 1, 2), busy_poll=True, fin_quiet_ivl="100ms") as source,
    ):
        for item in receiver:
            if isinstance(item, Message):
                source.send(item.payload)
            if isinstance(item, Closed):
                break


def _url(place: Place, group: int, host: int = 0) -> str:
    address = f"&address={place.address(host)}" if host else ""
    return f"pgm://{place.group(group)}:{place.port}?interface=lo&data_port=7500{address}"


def test_two_processes_play_ping_pong(place: Place) -> None:
    other = multiprocessing.get_context("spawn").Process(target=_reflect, args=(place,))
    with pgm.blocking.open_receiver(_url(place, 1), busy_poll=True) as receiver:
        other.start()
        with pgm.blocking.open_source(_url(place, 0, 1), busy_poll=True, fin_quiet_ivl="100ms") as source:
            give_up = time.monotonic() + PATIENCE_S
            while receiver.recv(0.05) is None:  # until the other one is there
                source.send(b"hello")
                assert time.monotonic() < give_up
            while receiver.recv(0.3) is not None:
                pass
            for number in range(500):
                source.send(b"%d" % number)
                answer = receiver.recv(PATIENCE_S)
                assert isinstance(answer, Message)
                assert answer.payload == b"%d" % number
        items = take(receiver, is_closed)
        assert not [item for item in items if isinstance(item, (Message, Lost))]
    other.join(PATIENCE_S)
    assert other.exitcode == 0


def test_busy_poll_reads_between_single_messages(place: Place) -> None:
    with (
        pgm.blocking.open_receiver(_url(place, 0), busy_poll=True) as receiver,
        pgm.blocking.open_source(_url(place, 0, 1), busy_poll=True, fin_quiet_ivl="100ms") as source,
    ):
        source.send(b"opens the session")
        before, until_ns = receiver.counters.packets_in, source.driver.now_ns() + 5 * MILLISECOND
        while source.driver.now_ns() < until_ns:
            source.send(b"one of many")
        assert receiver.counters.packets_in > before


def test_all_that_links_did_not_take_goes_in_order_when_they_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sends of one call to the core: the second neither overtakes nor replaces the first."""
    with (
        pgm.blocking.open_source(_url(place, 0, 1), busy_poll=True, fin_quiet_ivl="100ms") as source,
    ):
        driver, segment = source.driver, source.driver.links[0].segment
        taken: list[tuple[bytes, int]] = []
        refusals = iter([4, 0])

        def refuse(send: Send, at: int = 0) -> None:
            refused_at = next(refusals, None)
            if refused_at is not None:
                raise WouldBlock(at + refused_at, driver.links[0].sockets.own)
            taken.append((bytes(send.octets), at))

        with monkeypatch.context() as patch:
            patch.setattr(driver.links[0], "send", refuse)
            driver.perform([alone(segment, b"first one"), alone(segment, b"second")])
            assert len(driver.held) == 2
            driver.serve(driver.now_ns())
            assert not taken
            driver.serve(driver.now_ns())
        assert [octets for octets, _ in taken[:2]] == [b"first one", b"second"]
        assert [at for _, at in taken[:2]] == [4, 0]
        assert not driver.held


_SLOW_LINK = """
import subprocess, pgm, pgm.blocking
url = "pgm://239.192.1.1:23000?interface=lo&data_port=7500&so_sndbuf=16KiB&rate=1Gbit/s&fin_quiet_ivl=100ms"
sent = [b"%d" % number + bytes(1000) for number in range(300)]
held = 0
with pgm.blocking.open_receiver(url, busy_poll=True) as receiver, pgm.blocking.open_source(url, busy_poll=True) as source:
    turn = source.driver.loop.turn
    def counted():
        global held
        held += bool(source.driver.held)
        turn()
    source.driver.loop.turn = counted
    for message in sent:
        source.send(message)
    got = []
    while len(got) < len(sent):
        item = receiver.recv(20)
        assert item is not None, len(got)
        if isinstance(item, pgm.Message):
            got.append(item.payload)
    assert got == sent
print("held", held > 0)
"""


@pytest.mark.network
@needs_namespaces
def test_data_waits_for_a_link_that_takes_no_more() -> None:
    """On a link of 4 Mbit/s with a long queue, a source set to 1 Gbit/s fills the socket's buffer."""
    with lab() as made:
        host = made.host("slow")
        host.run("ip", "link", "set", "lo", "mtu", "1500")
        try:
            host.run("sh", "-c", "tc qdisc add dev lo root tbf rate 4mbit burst 4kb latency 10s")
        except AssertionError as error:
            pytest.skip(f"no token bucket here: {error}")
        assert host.run(sys.executable, "-c", _SLOW_LINK) == "held True\n"


@pytest.mark.parametrize(("spin", "least", "most"), [("0s", 0.02, 1.1), ("1ms", 0.0, 0.2)])
def test_a_spinner_may_park_and_is_woken_by_what_comes(place: Place, spin: str, least: float, most: float) -> None:
    """For half a second without data, the receiver busy-polls, or blocks and uses next to no CPU.

    In either case it receives the next message at once.
    """
    tree = loads(one_segment(place))
    with (
        pgm.blocking.open_receiver(tree, node="desk-1", busy_poll=True, rx_spin_ivl=spin) as receiver,
        pgm.blocking.open_source(tree, node="source") as source,
    ):
        source.send(b"first")
        assert [item.payload for item in take(receiver, has_messages(1)) if isinstance(item, Message)] == [b"first"]
        used, began = time.thread_time(), time.monotonic()
        assert receiver.recv(0.5) is None
        share = (time.thread_time() - used) / (time.monotonic() - began)
        source.send(b"second")
        assert b"second" in payloads(take(receiver, has_messages(1)))
    assert least <= share <= most


def test_backlog_is_read_while_the_application_drains_it(place: Place) -> None:
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms"), busy_poll=True) as source,
    ):
        source.send(b"first")
        take(receiver, has_messages(1))
        for rows in BACKLOG:
            source.send_batch(rows)
            receiver.poll()
        while receiver.counters.received_packets < 1 + BACKLOG_PACKETS:
            receiver.poll()
        knock(receiver)
        assert "truncated" not in receiver.counters.rejects
        octets = 0
        while "truncated" not in receiver.counters.rejects:
            batch = receiver.next_batch(0)
            assert isinstance(batch, Batch), octets
            octets += batch.payloads.size
        assert octets <= 2 * OCTETS_BETWEEN_READS
