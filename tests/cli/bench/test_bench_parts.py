"""Parts of `pgm bench` that decide the result: the search for a rate, and the checks of a receiver."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from deploy.bench.benchmarks import record as recording
from deploy.bench.benchmarks.latency import trips
from deploy.bench.benchmarks.recorded_tree import until_closed_or_ended
from deploy.bench.benchmarks.signed import processors_at, ratios_to
from deploy.bench.benchmarks.signed_tree import PROTECTIONS, protected_both_ways, protected_chain
from deploy.bench.command import BENCHMARKS
from deploy.bench.contender import Job
from deploy.bench.contenders.raw import RAW_GSO
from deploy.bench.limits import limited_by
from deploy.bench.peer import ProcessUsage, running
from deploy.bench.peers.arrivals import ArrivalLog
from deploy.bench.peers.messages import PROBE, MessageMaker, MessageTally
from deploy.bench.peers.pace import Pace
from deploy.bench.peers.round_trips import RoundTrips, TripResult
from deploy.bench.place import Loopback, loss_rule
from deploy.bench.plot import DRAWN, label, plot
from deploy.bench.ratios import part_of, ratios_of
from deploy.bench.search import Maximum, RateSearch
from deploy.bench.settings import BenchSettings
from deploy.bench.tree import MOST_SIMULATED, three_tiers
from deploy.bench.trial import PeerResult, TrialResult
from deploy.bench.turns import Searcher, run_interleaved
from deploy.bench.view import FIELDS, remarks
from deploy.node.supervisor import object_in
from pgm.errors import ProcessError
from pgm.net.keys.key_directory import place_of
from pgm.topology.load import load_checked
from pgm.units import parse_fraction

SIZE = 1000


def trial_result(rate: float, offered: float, carried: float, lost: int = 0, cpu_s: float = 0.5) -> TrialResult:
    """Return the result of a trial of one second."""
    sent = round(offered)
    return TrialResult(
        size=SIZE,
        rate=rate,
        sent=sent,
        received=sent - lost,
        disordered=0,
        damaged=0,
        seconds=max(1.0, sent / carried),
        send_s=1.0,
        sender=PeerResult({}, cpu_s, 0),
        receiver=PeerResult({}, cpu_s, 0),
        kernel_drops=lost,
        datagrams=sent,
    )


class Line:
    """Path that carries `capacity` messages a second and loses the excess.

    The sender sends at most `fastest` messages a second.
    """

    def __init__(self, capacity: float, fastest: float) -> None:
        self.capacity = capacity
        self.fastest = fastest
        self.rates: list[float] = []

    async def run(self, rate: float) -> TrialResult:
        self.rates.append(rate)
        offered = min(rate or self.fastest, self.fastest)
        return trial_result(rate, offered, self.fastest, lost=max(0, round(offered - self.capacity)))


def search_maximum(line: Line, runs: int = 3, precision: float = 0.02) -> Maximum:
    return trio.run(RateSearch(line.run, runs, precision).maximum)


@pytest.mark.parametrize("capacity", [100, 5_000, 50_000, 93_000, 99_990])
def test_rate_search_finds_the_capacity_of_a_line(capacity: float) -> None:
    maximum = search_maximum(Line(capacity, fastest=100_000))
    assert maximum.median is not None
    assert len(maximum.runs) == 3
    assert all(run.is_whole for run in maximum.runs)
    assert capacity - 0.03 * 100_000 <= maximum.median.messages_per_s <= capacity + 1
    assert maximum.too_fast is not None
    assert maximum.too_fast.offered_per_s > capacity


def test_rate_search_goes_above_a_rate_the_sender_slowed_to() -> None:
    """The sender is slower flat out than at a set rate without loss."""
    line = Line(80_000, fastest=100_000)

    async def run(rate: float) -> TrialResult:
        return await line.run(rate) if rate else trial_result(0.0, 50_000, 40_000, lost=1000)

    maximum = trio.run(RateSearch(run, 3, 0.02).maximum)
    assert maximum.median is not None
    assert 77_000 <= maximum.median.messages_per_s <= 80_001


def test_rate_search_ends_at_once_without_loss_flat_out() -> None:
    """A higher set rate does not make the sender faster, so flat out is the highest rate."""
    line = Line(capacity=200_000, fastest=100_000)
    maximum = search_maximum(line)
    assert line.rates == [0.0, 150_000, 0.0, 0.0]
    assert maximum.too_fast is None
    assert "its sender" in limited_by(RAW_GSO, maximum)


def test_rate_search_precision_of_100_percent_takes_any_rate() -> None:
    assert trio.run(RateSearch((line := Line(200_000, 100_000)).run, 1, 1.0).maximum).median is not None
    assert line.rates == [0.0]
    maximum = trio.run(RateSearch((line := Line(30_000, 100_000)).run, 1, 1.0).maximum)
    assert maximum.median is not None
    assert line.rates == [0.0, maximum.median.messages_per_s]
    assert line.rates[1] <= 30_000


def test_rate_search_goes_on_when_a_set_rate_beats_flat_out() -> None:
    line = Line(capacity=190_000, fastest=400_000)

    async def run(rate: float) -> TrialResult:
        return await line.run(rate) if rate else trial_result(0.0, 100_000, 100_000)

    maximum = trio.run(RateSearch(run, 3, 0.02).maximum)
    assert maximum.median is not None
    assert 184_000 <= maximum.median.messages_per_s <= 190_001


def test_searches_are_interleaved_in_search_and_confirmation() -> None:
    """A finished search waits; the runs that confirm the rates are then interleaved."""
    said: list[str] = []

    def search(name: str, capacity: float) -> Callable[[Searcher], Awaitable[Maximum]]:
        line = Line(capacity, fastest=100_000)

        async def run_search(searcher: Searcher) -> Maximum:
            async def run(rate: float) -> TrialResult:
                async with searcher.trial():
                    said.append(name)
                    await trio.lowlevel.checkpoint()
                    return await line.run(rate)

            return await RateSearch(run, 3, 0.02, searcher.on_rate_found).maximum()

        return run_search

    searches = [search("quick", 200_000), search("slow", 50_000), search("slower", 5_000)]
    maxima = trio.run(run_interleaved, searches)
    assert [one.trials for one in maxima] == [said.count(name) for name in ("quick", "slow", "slower")]
    assert maxima[0].trials < maxima[1].trials
    assert (sorted(said[:3]), said[:3]) == (["quick", "slow", "slower"], said[3:6])
    assert sorted(said[-6:]) == ["quick", "quick", "slow", "slow", "slower", "slower"]


def test_turns_a_failing_search_does_not_block_the_others() -> None:
    async def fails(searcher: Searcher) -> str:
        async with searcher.trial():
            return "nothing"

    async def waits(searcher: Searcher) -> str:
        await searcher.on_rate_found()
        return "found"

    assert trio.run(run_interleaved, [waits, fails]) == ["found", "nothing"]

    async def breaks(_: Searcher) -> str:
        raise ProcessError("broken")

    with pytest.raises(ProcessError, match="broken"):
        trio.run(run_interleaved, [waits, breaks])


class StallingLine(Line):
    """Line on a machine that stops for a moment in each of the trials `stalls`."""

    def __init__(self, stalls: frozenset[int]) -> None:
        super().__init__(capacity=80_000, fastest=100_000)
        self.stalls = stalls

    async def run(self, rate: float) -> TrialResult:
        made = await super().run(rate)
        offered = made.offered_per_s
        is_stalled = len(self.rates) - 1 in self.stalls and made.is_whole
        return trial_result(rate, offered, self.fastest, lost=round(0.01 * offered)) if is_stalled else made


@pytest.mark.parametrize("stalls", [{1}, {3}, {1, 4}, {2, 5}, {6}, {9}, {10}, {11}, {12}, {13}])
def test_rate_search_single_stall_does_not_change_the_result(stalls: set[int]) -> None:
    maximum = search_maximum(StallingLine(frozenset(stalls)))
    assert maximum.median is not None
    assert len(maximum.runs) == 3
    assert all(run.is_whole and run.rate == maximum.runs[0].rate for run in maximum.runs)
    assert 77_000 <= maximum.median.messages_per_s <= 80_001


def test_rate_search_failed_run_at_the_result_is_reported() -> None:
    line = Line(capacity=80_000, fastest=100_000)
    first = search_maximum(line)
    assert (first.stumbles, "this rate failed" in limited_by(RAW_GSO, first)) == (0, False)
    stalled = search_maximum(StallingLine(frozenset({len(line.rates) - 1})))  # the last of the confirming runs
    assert stalled.stumbles == 1
    assert "one run at this rate failed" in limited_by(RAW_GSO, stalled)
    assert first.median is not None
    assert stalled.median is not None
    assert stalled.median.rate == first.median.rate


def test_rate_search_rate_that_fails_twice_is_too_fast() -> None:
    line = Line(capacity=80_000, fastest=100_000)
    last = len(search_maximum(line).runs) + len(line.rates)
    again = search_maximum(StallingLine(frozenset(range(len(line.rates) - 2, last))))
    assert again.median is not None
    assert again.too_fast is not None
    assert again.median.rate < again.too_fast.rate <= 80_001


def test_rate_search_line_with_constant_loss_has_no_maximum() -> None:
    line = Line(capacity=0, fastest=100_000)
    maximum = search_maximum(line)
    assert maximum.median is None
    assert len(line.rates) < 20
    assert limited_by(RAW_GSO, maximum).startswith("no rate without loss")


def test_rate_search_rate_that_passes_once_is_no_result() -> None:
    """Every second trial above half of the capacity fails, so the result is below that."""

    class FlakyLine(Line):
        async def run(self, rate: float) -> TrialResult:
            made = await super().run(rate)
            is_lucky = len(self.rates) % 2 == 0 and made.offered_per_s <= self.capacity
            is_safe = made.offered_per_s <= self.capacity / 2
            return made if is_lucky or is_safe else trial_result(rate, made.offered_per_s, self.fastest, lost=1)

    maximum = search_maximum(FlakyLine(capacity=80_000, fastest=100_000), runs=4)
    assert maximum.median is None or maximum.median.messages_per_s <= 40_001


def test_every_benchmark_has_its_table_and_its_picture() -> None:
    assert set(DRAWN) == set(FIELDS) == set(BENCHMARKS)


def test_bursts_are_told_from_a_steady_stream() -> None:
    steady, bursts = ArrivalLog(1_000_000), ArrivalLog(1_000_000)
    for number in range(10):
        steady.add(1000, 10**9 + number * 10**6)
        bursts.add(1000, 10**9 + number // 5 * 5 * 10**6)
    assert (steady.burst_ns, bursts.burst_ns) == (10**6, 5 * 10**6)
    assert (steady.octets, steady.later_octets, steady.last_ns - steady.first_ns) == (10_000, 9000, 9 * 10**6)


def test_trial_receiver_slower_than_sender_has_not_kept_up() -> None:
    slow = trial_result(1000, 1000, carried=500)
    assert not slow.is_whole
    assert slow.flaw == "the receiver fell behind"
    assert trial_result(1000, 1000, carried=1000).is_whole


def test_limits_are_derived_from_cpu_and_drops() -> None:
    best = trial_result(900, 900, 1000, cpu_s=0.97)
    said = limited_by(RAW_GSO, Maximum([best], trial_result(1000, 1000, 1000, lost=40), 5))
    assert "limited by the sender's core (97%)" in said
    assert "too fast at 1 MB/s: 40 of 1,000 messages lost, 40 drops at the receiver's full buffer" in said
    held_up = limited_by(RAW_GSO, Maximum([best], trial_result(9000, 4000, 1000, lost=40), 5))
    assert "too fast at 9 MB/s, of which 4 MB/s were sent: 40 of 4,000 messages lost" in held_up


@pytest.mark.parametrize("size", [8, 70, 1400, 8192, 1_000_000])
def test_a_complete_stream_is_whole(size: int) -> None:
    maker, tally = MessageMaker(size), MessageTally(size)
    tally.add(maker.probe())
    for _ in range(3):
        tally.add(maker.next())
    result = tally.result()
    assert tally.probes == 1
    assert result["messages"] == maker.made == 3 * maker.count
    assert (result["missing"], result["disordered"], result["damaged"]) == (0, 0, 0)
    assert result["first_ns"] <= result["last_ns"]


def test_missing_disordered_and_damaged_messages_are_seen() -> None:
    maker, tally = MessageMaker(100), MessageTally(100)
    rows = maker.next().copy()
    tally.add(rows[:10])
    tally.add(rows[12:20])
    assert tally.missing == 2
    tally.add(rows[5:7])
    assert tally.disordered == 1
    swapped = rows[20:24].copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    tally.add(swapped)
    assert tally.disordered == 2
    bad = rows[24:30].copy()
    bad[-1, 50] ^= 1
    tally.add(bad)
    assert tally.damaged == 1
    tally.add(np.zeros((2, 99), np.uint8))
    assert tally.damaged == 3


def test_damage_anywhere_in_a_large_message_is_seen() -> None:
    """A part of each message is checked, and the parts of successive messages cover all places."""
    size = 100_000
    maker, tally = MessageMaker(size), MessageTally(size)
    for _ in range(2 * size // 8192):
        rows = maker.next().copy()
        rows[:, size // 2] ^= 1
        tally.add(rows)
    assert tally.damaged >= 1


def test_messages_taken_one_by_one_are_checked_too() -> None:
    tally = MessageTally(50)
    for number in (PROBE, 0, 1, 3, 2):
        tally.add_one(number.to_bytes(8, "big") + bytes(42))
    assert (tally.probes, tally.messages, tally.missing, tally.disordered) == (1, 4, 1, 1)


def test_a_pace_holds_and_does_not_make_up_for_pauses() -> None:
    pace = Pace(10_000)
    started = time.monotonic()
    for _ in range(100):
        pace.wait(10)
    assert time.monotonic() - started >= 0.09
    time.sleep(0.05)
    started = time.monotonic()
    for _ in range(50):
        pace.wait(10)
    assert time.monotonic() - started >= 0.04
    started = time.monotonic()
    for _ in range(1000):
        Pace(0).wait(10)
    assert time.monotonic() - started < 1.0


def test_ratios_are_of_ours_to_others() -> None:
    rows = [
        {"contender": "ours-trio", "size": 70, "mb_per_s": 30.0},
        {"contender": "ours-busy-poll", "size": 70, "mb_per_s": 60.0},
        {"contender": "openpgm", "size": 70, "mb_per_s": 10.0},
        {"contender": "zeromq", "size": 70, "mb_per_s": 0.0},
        {"contender": "zeromq", "size": 1400, "why_not": "not here"},
        {"contender": "ours-trio", "size": 1400, "mb_per_s": 5.0},
    ]
    assert ratios_of(rows, "mb_per_s") == {"70": {"ours-trio/openpgm": 3.0, "ours-busy-poll/openpgm": 6.0}}


_WORKER = """
import threading, time
def work():
    while time.thread_time() < 0.2: pass
one = threading.Thread(target=work)
one.start(), one.join()
print('7'), print('{}'), print('{"event": "done"}', flush=True)
input()
raise SystemExit(3)
"""


def test_part_of_zero_is_none() -> None:
    assert (part_of(1.0, 3.0), part_of(0.0, 3.0), part_of(0.0, 0.0)) == (0.333, 0.0, None)
    assert FIELDS["record"][1].write({"of_plain": None}) == ""


def test_plot_without_results_is_drawn_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, machine = tmp_path / "out.svg", {"cpu": "some", "cpus": 2, "kernel": "6"}
    rows = [{"contender": "openpgm", "title": "OpenPGM (C)", "size": 1400, "why_not": "not installed"}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot(file, {"throughput": rows, "relay": []}, machine)
    assert file.stat().st_size


def test_plot_labels_octets_only_for_sizes() -> None:
    """The size of the scale benchmark is a number of receivers and not of octets."""
    assert label(1400, DRAWN["throughput"][2]) == "1,400 octets"
    assert label(9000, DRAWN["messages"][2]) == "9,000 octets"
    assert label(10_000, DRAWN["scale"][2]) == "10,000"
    assert label("through a relaying repairer", DRAWN["relay"][2]) == "through a relaying repairer"


def test_process_usage_includes_ended_threads() -> None:
    """Other lines of the output appear in the error of a failed peer; an ended peer has no usage."""

    async def watched() -> None:
        async with running("worker", [sys.executable, "-c", _WORKER], dict(os.environ)) as peer:
            await peer.until("done", 30)
            assert peer.usage.cpu_s >= 0.2
            assert peer.usage.peak_octets > 1 << 20
            await peer.tell("go")
            with pytest.raises(ProcessError, match=r"code 3\n  7\n  {}"):
                await peer.until("more", 30)
            with pytest.raises(ProcessError, match="code 3"):
                _ = peer.usage

    trio.run(watched)


@pytest.mark.parametrize(
    ("line", "found"), [('{"a": 1}', {"a": 1}), ("{}", {}), ("7", None), ("[1]", None), ("{", None)]
)
def test_object_in_line_without_an_object_is_none(line: str, found: object) -> None:
    assert object_in(line) == found


def test_bench_desk_that_missed_the_end_is_not_awaited() -> None:
    async def wait(has_heard: bool) -> None:
        heard, ended = trio.Event(), trio.Event()
        (heard if has_heard else ended).set()
        with trio.fail_after(5):
            await until_closed_or_ended(heard, ended)

    trio.run(wait, True)
    trio.run(wait, False)


def test_bench_remarks_name_row_and_exit_status() -> None:
    row = {
        "title": "pgm, trio",
        "size": 1400,
        "rate": "100bit/s",
        "why_not": "ours-trio (send) ended with code 1\n  a\n  b: c",
    }
    assert remarks([row]) == [
        "pgm, trio, 1,400 octets, 100bit/s: did not run: ours-trio (send) ended with code 1: b: c"
    ]
    of_jumbo = {"benchmark": "messages", "title": "pgm", "size": 70, "mtu": 9000, "limited_by": "its sender"}
    assert remarks([of_jumbo]) == ["pgm, 70 octets, MTU 9,000: its sender"]
    assert remarks([row | {"why_not": "not here"}])[0].endswith("did not run: not here")


@pytest.mark.parametrize("receivers", [51, 13_000, MOST_SIMULATED])
def test_a_simulated_tree_of_any_size_is_a_valid_one(tmp_path: Path, receivers: int) -> None:
    topology = load_checked(three_tiers(tmp_path, receivers))
    assert sum(node.count or 0 for node in topology.nodes.values() if node.role.value == "receiver") == receivers


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_trees_of_a_protection_are_valid_and_have_their_keys(tmp_path: Path, protection: str) -> None:
    settings = BenchSettings(folder=tmp_path)
    files = [protected_chain(Loopback(1500, 3), "repairer", protection, "batch", settings)]
    files.append(protected_both_ways(Loopback(1500, 2), protection, settings))
    for topology in map(load_checked, files):
        assert {stream.signed for stream in topology.streams.values()} == {protection != "clear"}
        for node in topology.keys:
            assert place_of(topology.name, node, topology.key_directory).held()
    assert load_checked(files[0]).streams["s"].framing == "batch"


def test_costs_of_protection_are_ratios_to_the_stream_in_the_clear() -> None:
    clear = {"mb_per_s": 200.0, "cpu_ms_per_mb": {"source": 0.5, "receiver": 0.4}}
    costly = {"mb_per_s": 150.0, "cpu_ms_per_mb": {"source": 1.0, "receiver": 0.5}}
    assert ratios_to(clear, costly) == {"of_clear": 0.75, "cpu_of_clear": {"source": 2.0, "receiver": 1.25}}
    assert ratios_to({"why_not": "not here"}, costly) == {}
    assert processors_at(400e6, {"source": 1.0, "receiver": 0.5, "aggregator": 1.0}) == 1.0


@pytest.mark.parametrize(
    ("share", "drawn"),
    [("1%", "100000000 < 1000000 "), ("0.004%", "100000000 < 4000 "), ("0.000001%", "100000000 < 1 ")],
)
def test_bench_small_loss_is_not_rounded_to_none(share: str, drawn: str) -> None:
    assert f"numgen random mod {drawn}" in loss_rule("up0", parse_fraction(share))


async def test_bench_record_run_without_data_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_arguments: object, **_options: object) -> dict[str, Any]:
        return {"seconds": 1.0, "snapshot": {"counters": {}, "cpu_s": 0.1}}

    monkeypatch.setattr(recording, "run_tree", nothing)
    rows = await recording.receivers(BenchSettings(seconds=0.01, runs=1, folder=tmp_path))
    assert [(row["mb_per_s"], row["of_plain"]) for row in rows] == [(0.0, None), (0.0, None)]


def test_bench_latency_measures_on_until_an_answer() -> None:
    """A stall of the machine can outlast the whole measurement."""
    asked = RoundTrips(0.0, warm_up_s=0.0)
    for result in (TripResult.LOST, TripResult.NO, TripResult.YES):
        assert not asked.are_over
        asked.begin()
        asked.end(result)
    assert asked.are_over
    assert (asked.result()["trips"], asked.result()["lost_trips"]) == (1, 2)


def test_bench_latency_without_any_answer_ends() -> None:
    asked = RoundTrips(0.0, warm_up_s=0.0)
    for _ in range(100):
        if asked.are_over:
            break
        asked.begin()
        asked.end(TripResult.NO)
    assert asked.are_over
    assert asked.result()["trips"] == 0


def test_bench_latency_without_answers_is_not_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution without round trips is all zeros."""
    asked = RoundTrips(0.0, warm_up_s=0.0)
    asked.begin()
    asked.end(TripResult.NO)

    class End:
        usage = ProcessUsage(0.0, 0)

        async def tell(self, _word: str) -> None:
            pass

        async def until(self, _event: str, _patience_s: float) -> dict[str, float | int]:
            return asked.result()

    @asynccontextmanager
    async def pair(*_: object) -> AsyncIterator[tuple[End, End]]:
        yield End(), End()

    monkeypatch.setattr("deploy.bench.benchmarks.latency.pair", pair)
    contender: Any = RAW_GSO
    with pytest.raises(ProcessError, match="none of 1 requests was answered"):
        trio.run(trips, contender, Job(Loopback(1500), 100, seconds=0.1))
