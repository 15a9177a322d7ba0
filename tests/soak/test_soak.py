"""A small share of the soak without Spark, and the parts that judge it."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import attrs
import pytest

from tests.folders import short_folder
from tests.soak.account import MOST_GROWTH, WARM_S, lines
from tests.soak.memory import HOUR_S, MB, Series, resident, slope
from tests.soak.parts import Taken
from tests.soak.run import Part, Plan, Result, Soak


def growing(mb_per_hour: float, *, hours: float = 2.0, noise_mb: float = 0.2, jump_mb: float = 0.0) -> Series:
    rng, made = random.Random(1), Series()
    for at in range(0, int(hours * HOUR_S), 10):
        jump = jump_mb if rng.random() < 0.2 else 0.0
        made.add(at, (60 + mb_per_hour * at / HOUR_S + rng.uniform(0, noise_mb) + jump) * MB)
    return made


def test_soak_of_seconds_with_restarts_loses_nothing() -> None:
    said: list[str] = []
    plan = Plan(6.0, rate=100.0, restart_s=2.0, has_query=False, sample_s=1.0)
    with short_folder() as folder:
        result = Soak(plan, folder, said.append, threading.Event()).run()
        account = lines(result, folder)
    assert [str(line) for line in account if line.is_kept is False] == [], said
    assert sum(result.restarts.values()) >= 1
    assert result.sent > 100


def test_slope_ignores_jumps_and_finds_a_leak() -> None:
    assert abs(slope(growing(0.0, jump_mb=5.0))) < 0.1 * MB
    assert slope(growing(3.0, jump_mb=5.0)) / MB == pytest.approx(3.0, abs=0.1)
    assert slope(Series([1.0], [5.0])) == 0.0


def test_series_of_days_has_a_bound_and_its_slope() -> None:
    made = growing(2.0, hours=72)
    assert len(made.times) < 2048
    assert made.span_s > 70 * HOUR_S
    assert slope(made) / MB == pytest.approx(2.0, abs=0.1)


def test_account_fails_a_role_that_grows() -> None:
    result = Result(Plan(2 * HOUR_S))
    result.steady = {
        "flat": growing(MOST_GROWTH / 2),
        "leaky": growing(MOST_GROWTH * 3),
        "young": growing(9, hours=0.5),
    }
    with short_folder() as folder:
        found = {line.name: line.is_kept for line in lines(result, folder)}
    assert found["memory of flat"] is True
    assert found["memory of leaky"] is False
    assert found["memory of young"] is None
    assert growing(9, hours=0.5).span_s < WARM_S


def test_account_fails_what_is_lost_or_missing() -> None:
    row = {"delivered": 9, "lost": 0, "duplicates": 0, "out_of_order": 0, "damaged": 0}
    result = Result(Plan(60), sent=10, query={"sessions": {"t": [0, 10, 9, 1, 0]}})
    result.accounts = {"calm-1": [row], "calm-2": [row | {"delivered": 10}], "wild-2": [row | {"lost": 1}]}
    with short_folder() as folder:
        found = {line.name: line.is_kept for line in lines(result, folder)}
    assert (found["calm-1"], found["calm-2"], found["wild-2"]) == (False, True, False)
    assert found["query"] is False
    assert found["archive of repairer-1"] is False


def test_query_sums_count_a_repeated_batch_once(tmp_path: Path) -> None:
    taken = Taken()
    taken.add(0, [["t", 0, 10, 10, 10, 0]])
    taken.add(0, [["t", 0, 10, 10, 10, 0]])
    taken.add(1, [["t", 12, 20, 7, 8, 2]])
    taken.save(tmp_path / "state")
    assert Taken.load(tmp_path / "state") == taken
    assert taken.sessions == {"t": [0, 20, 17, 2, 2]}, "two sqns lack a row"


def test_part_ends_as_asked_and_bounds_its_log(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(
        "import sys\nprint('ready', flush=True)\nsys.stdin.read()\nprint('{\"a\": 1}')\n"
    )
    part = Part("words", ["timeit", "-n1", "-r1", f"exec(open({str(tmp_path / 'words.py')!r}).read())"], tmp_path)
    part.start()
    assert part.process is not None
    assert dict(resident({"words": part.process.pid}))["words"] > 0
    part.stdin.close()
    assert part.end(None) == 0
    part.look()
    assert part.is_ready
    assert part.accounts == [{"a": 1}]
    part.log.write_bytes(bytes(3 << 20))
    part.look()
    assert part.log.stat().st_size <= 1 << 20
    part.start()
    part.end(signal.SIGKILL)
    assert len(part.accounts) == 1
    part.close()


def test_plan_leaves_rest_before_the_end() -> None:
    assert Plan(60).rest_s == 30
    assert attrs.evolve(Plan(60), restart_s=2.0).rest_s == 2
