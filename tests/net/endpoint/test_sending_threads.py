"""Blocking sources of several threads: each send runs in the thread that calls it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio

import pgm
import pgm.blocking
from pgm import CloseCause, Closed, Lost, Message, Notice, Opened
from pgm.core.effects import Effect
from pgm.errors import PayloadTooLarge, SourceClosed
from pgm.net.framing.items import Item
from pgm.net.gate.gate_driver import GateDriver
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place

EACH = 1500
THREADS = 4
INTERRUPTS = 50
_FRAMINGS = pytest.mark.parametrize(
    "query", ["", "&framing=batch", "&framing=zeromq"], ids=["plain", "batch", "zeromq"]
)


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    """Let threads interrupt each other often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def url_of(place: Place, query: str, **parameters: str) -> str:
    return place.url(fin_quiet_ivl="50ms", **parameters) + query


def taken(receiver: pgm.blocking.Receiver) -> list[Item]:
    """Take everything up to the end of the stream."""
    items: list[Item] = []
    while not items or not isinstance(items[-1], Closed):
        item = receiver.recv(PATIENCE_S)
        assert item is not None
        items.append(item)
    return items


def in_threads(*functions: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@_FRAMINGS
@pytest.mark.parametrize("limits", [{}, {"txw_max_rte": "40Mbit/s", "txw_unsent_bytes": "64KiB"}], ids=["fast", "slow"])
def test_threads_that_send_at_once_lose_nothing(place: Place, query: str, limits: dict[str, str]) -> None:
    sqns: list[list[int]] = [[] for _ in range(THREADS)]
    with pgm.blocking.open_receiver(place.url() + query) as receiver:
        got: list[Item] = []
        [taker] = in_threads(lambda: got.extend(taken(receiver)))
        with pgm.blocking.open_source(url_of(place, query, **limits)) as source:

            def send(number: int) -> None:
                for at in range(EACH):
                    payload = b"%d %d " % (number, at) + b"x" * (at % 90)
                    if at % 100 == 50:
                        sqns[number].append(source.send_batch([payload]))
                    else:
                        sqns[number].append(source.send(payload, flush=at % 200 == 7))

            join(in_threads(*[partial(send, number) for number in range(THREADS)]))
        join([taker])
    assert isinstance(got[0], Opened)
    assert not any(isinstance(item, Lost) for item in got)
    assert isinstance(got[-1], Closed)
    assert got[-1].cause is CloseCause.FIN
    words = [item.payload.split(b" ") for item in got if isinstance(item, Message)]
    for number in range(THREADS):
        mine = [int(at) for sender, at, _ in words if int(sender) == number]
        assert mine == list(range(EACH))
        assert sqns[number] == sorted(sqns[number])


@_FRAMINGS
def test_a_source_closed_during_sends_delivers_what_it_accepted(place: Place, query: str) -> None:
    accepted = [0] * THREADS
    errors: list[Exception] = []
    with pgm.blocking.open_receiver(place.url() + query) as receiver:
        got: list[Item] = []
        [taker] = in_threads(lambda: got.extend(taken(receiver)))
        are_busy = threading.Semaphore(0)
        with pgm.blocking.open_source(url_of(place, query)) as source:

            def send(number: int) -> None:
                try:
                    while True:
                        source.send(b"%d %d" % (number, accepted[number]))
                        accepted[number] += 1
                        if accepted[number] == 100:
                            are_busy.release()
                except (pgm.UsageError, SourceClosed) as error:
                    errors.append(error)

            threads = in_threads(*[partial(send, number) for number in range(THREADS)])
            for _ in threads:
                assert are_busy.acquire(timeout=PATIENCE_S)
        join([*threads, taker])
    assert len(errors) == THREADS
    words = [item.payload.split() for item in got if isinstance(item, Message)]
    for number in range(THREADS):
        assert [int(at) for sender, at in words if int(sender) == number] == list(range(accepted[number]))


def test_sends_of_a_thread_are_not_handed_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pgm.blocking.open_source(url_of(place, "")) as source, monkeypatch.context() as patch:
        patch.setattr(trio.from_thread, "run", None)
        patch.setattr(trio.from_thread, "run_sync", None)
        before = source.counters.odata_packets
        assert [source.send(b"1"), source.send_batch([b"2", b"3"]), source.try_send(b"4")] == [0, 1, 3]
        assert source.counters.odata_packets == before + 4


def test_try_send_of_a_thread_says_none_without_room(place: Place) -> None:
    url = url_of(place, "", txw_max_rte="1Mbit/s", txw_unsent_bytes="64KiB", txw_bytes="1MiB")
    with pgm.blocking.open_source(url) as source:
        count = 0
        while source.try_send(bytes(1000)) is not None:
            count += 1
            assert count < 1000
        assert count > 50
        source.send(b"waits")
        with pytest.raises(pgm.UsageError):
            source.abort(99)
        source.abort(3)
        with pytest.raises(SourceClosed):
            source.send(b"late")


@pytest.mark.parametrize("mode", ["time", "data"])
def test_heartbeats_begin_anew_after_the_sends_of_a_thread(place: Place, mode: str) -> None:
    """The loop sleeps for a long interval then, and must be told."""
    limits = {"txw_adv_mode": mode, "ihb_min": "20ms", "ihb_max": "1h", "ambient_spm_ivl": "1h"}
    with pgm.blocking.open_source(url_of(place, "", **limits)) as source:

        def wait_for_spms(count: int) -> float:
            """Return the time until the last of so many SPMs, since the one before."""
            seen, last_s, until_s = source.counters.spm_packets, time.monotonic(), time.monotonic() + PATIENCE_S
            gap_s = 0.0
            while count:
                assert time.monotonic() < until_s
                assert source.sessions
                if (now := source.counters.spm_packets) != seen:
                    gap_s, last_s = time.monotonic() - last_s, time.monotonic()
                    count, seen = count - 1, now
            return gap_s

        source.send(b"first")
        for _ in range(2):
            interval_s = wait_for_spms(5)  # each interval is twice as long as the one before
            for _ in range(50):
                source.send(b"more")
            assert wait_for_spms(1) < interval_s / 2


def test_close_before_the_end_of_the_block_ends_the_stream(place: Place) -> None:
    with pgm.blocking.open_receiver(place.url()) as receiver:
        with pgm.blocking.open_source(url_of(place, "")) as source:
            source.send(b"last")
            source.close()
            with pytest.raises(SourceClosed):
                source.send(b"late")
        got = taken(receiver)
    assert [item.payload for item in got if isinstance(item, Message)] == [b"last"]
    assert isinstance(got[-1], Closed)
    assert got[-1].cause is CloseCause.FIN


def test_errors_of_sends_are_raised_in_their_thread(place: Place) -> None:
    with pgm.blocking.open_source(url_of(place, "", max_apdu="1000")) as source:
        with pytest.raises(PayloadTooLarge):
            source.send(bytes(2000))
        with pytest.raises(pgm.UsageError, match="subjects"):
            source.send(b"1", subject="/a")
        with pytest.raises(pgm.UsageError, match="several parts"):
            source.send_parts([b"1"])
        with pytest.raises(pgm.UsageError, match="no message"):
            source.send("text")  # type: ignore[arg-type]
        assert source.send(b"1") == 0
    for call in (source.send, source.try_send, lambda payload: source.send_batch([payload])):
        with pytest.raises(pgm.UsageError, match="closed"):
            call(b"2")


def notify(source: pgm.blocking.Source, notice: Notice) -> None:
    """Let a call of this thread give the application a notice."""
    driver = source.driver
    assert isinstance(driver, GateDriver)
    driver.run_here(driver.perform, (notice,))


def test_a_handler_of_notices_runs_in_the_loop(place: Place) -> None:
    told: list[tuple[str, bool]] = []
    main, is_told = threading.get_ident(), threading.Event()

    def handle(notice: Notice) -> None:
        told.append((notice.text, threading.get_ident() == main))
        if len(told) == 2:
            is_told.set()

    with pgm.blocking.open_source(url_of(place, ""), on_notice=handle) as source:
        for text in ("one", "two"):
            notify(source, Notice("PGM-TEST", text))
            source.send(b"behind it")
        assert is_told.wait(PATIENCE_S)
    assert told[:2] == [("one", False), ("two", False)]


def test_a_handler_of_notices_that_sends_is_told_so(place: Place) -> None:
    told: list[Effect] = []
    sources: list[pgm.blocking.Source] = []

    def handle(notice: Notice) -> None:
        told.append(notice)
        sources[0].send(b"from the loop")

    def open_and_notify() -> None:
        with pgm.blocking.open_source(url_of(place, ""), on_notice=handle) as source:
            sources.append(source)
            notify(source, Notice("PGM-TEST", "a test"))
            source.flush()

    with pytest.raises(pgm.UsageError, match="thread that runs the protocol"):
        open_and_notify()
    assert told


def test_interrupts_during_sends_lose_nothing(place: Place) -> None:
    interrupts = sent = 0
    with pgm.blocking.open_receiver(place.url() + "&framing=batch") as receiver:
        got: list[Item] = []
        [taker] = in_threads(lambda: got.extend(taken(receiver)))
        with pgm.blocking.open_source(url_of(place, "&framing=batch")) as source:
            main, permits = threading.get_ident(), threading.Semaphore(0)

            def interrupt() -> None:
                for _ in range(INTERRUPTS):
                    permits.acquire()
                    signal.pthread_kill(main, signal.SIGINT)

            threads = in_threads(interrupt)
            until_s = time.monotonic() + PATIENCE_S
            for _ in range(INTERRUPTS):
                try:
                    permits.release()  # one signal, which finds this thread between here and the end of the loop
                    while time.monotonic() < until_s:
                        source.send(b"%d" % sent)
                        sent += 1
                except KeyboardInterrupt:
                    interrupts += 1
                    sent += 1  # raised behind the send, or before it
            join(threads)
        join([taker])
    assert isinstance(got[-1], Closed)
    assert got[-1].cause is CloseCause.FIN
    numbers = [int(item.payload) for item in got if isinstance(item, Message)]
    assert numbers == sorted(set(numbers))
    assert sent - len(numbers) <= interrupts == INTERRUPTS
