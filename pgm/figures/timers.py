"""Timers that fire too early or too late, as in `pgm.spark.jobs.timers`, whose text tells how each is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pgm.figures import rules
from pgm.figures.event_rows import HAS_VALUE, EventRows, Groups, Ints
from pgm.figures.repairs import latency_steps, latency_us
from pgm.figures.rules import Summary
from pgm.figures.values import percentile

_Key = tuple[str, str, str]  # segment, role, timer
_REPETITION, _REPAIR, _BACK_OFF = "nak_rpt_ivl", "nak_rdata_ivl", "nak_bo_ivl"


def timers(events: EventRows, duplicates: Sequence[Summary]) -> list[Summary]:
    """Return a row for each timer and segment, with a verdict. `duplicates` are those of these events."""
    configured, measured = _configured(events), dict(_measured(events))
    rows = []
    for key, set_ms in configured.items():
        if key in measured:
            row = _row(key, set_ms, measured[key])
            fired, last_ms = row["fired"], row["answers_p99_ms"]
            row["early"] = row["early"] / fired if fired else None
            is_early = row["early"] is not None and row["early"] > rules.EARLY_SHARE
            is_late = bool(fired) and last_ms is not None and set_ms > rules.LATE_TIMES * last_ms
            rows.append({**row, "verdict": _verdict(is_early, is_late)})
    rows += _back_offs(configured, measured, duplicates)
    return sorted(rows, key=lambda row: (row["segment"], row["role"], row["timer"]))


def _row(key: _Key, set_ms: float, measured: Summary) -> Summary:
    return {"segment": key[0], "role": key[1], "timer": key[2], "set_ms": set_ms, **measured}


def _verdict(is_early: bool, is_late: bool) -> str:
    return "too early" if is_early else "too late" if is_late else "fits"


def _configured(events: EventRows) -> dict[_Key, float]:
    """Return the configured values of a segment's nodes in ms; the mean if they differ."""
    places = events.of_kind("address")
    places = places.where(~places.has("cause", "down"))
    segments: dict[int, list[int]] = {}
    for at in Groups.of(places["node"], places["segment"]).lead.tolist():
        segments.setdefault(int(places["node"][at]), []).append(int(places["segment"][at]))
    rows = events.of_kind("timer")
    rows = rows.where(rows[HAS_VALUE] == 1)
    values: dict[_Key, list[int]] = {}
    columns = (rows[name].tolist() for name in ("node", "role", "cause", "value_us"))
    for node, role, timer, value_us in zip(*columns, strict=True):
        for segment in segments.get(node, ()):
            key = (rows.text("segment", segment), rows.text("role", role), rows.text("cause", timer))
            values.setdefault(key, []).append(value_us)
    return {key: sum(found) / len(found) / 1000 for key, found in values.items()}


def _measured(events: EventRows) -> Iterator[tuple[_Key, Summary]]:
    rows = events.of_kind(*rules.ANSWERS, *rules.FIRINGS)
    rows = rows.where((rows[HAS_VALUE] == 1) & rows.has("role", *rules.ASKERS))
    is_repetition = rows.has("kind", *rules.OF_REPETITION)
    is_answer, is_confirmed = rows.has("kind", *rules.ANSWERS), rows.has("kind", "confirmed")
    is_first, is_backing_off = rows["tries"] == 0, rows.has("cause", "BACK_OFF")
    step = latency_steps(rows["value_us"])
    for members in Groups.of(rows["segment"], rows["role"], is_repetition.astype(np.int64)).members():
        one = members[0]
        timer = _REPETITION if is_repetition[one] else _REPAIR
        quantiles = _quantiles(step[members][(is_answer & is_first)[members]])
        was_on_the_way = np.zeros(len(members), bool)
        if quantiles:
            times = np.array([latency_us(at) for at in step[members].tolist()])
            was_on_the_way = (is_confirmed & ~is_first)[members] & (times < quantiles[0])
        overtaken = (is_answer & ~is_confirmed & ~is_first & is_backing_off)[members]
        key = (rows.text("segment", int(rows["segment"][one])), rows.text("role", int(rows["role"][one])), timer)
        yield (
            key,
            {
                "answers_p50_ms": quantiles[1] / 1000 if quantiles else None,
                "answers_p99_ms": quantiles[2] / 1000 if quantiles else None,
                "fired": int((~is_answer)[members].sum()),
                "early": int((was_on_the_way | overtaken).sum()),
            },
        )


def _quantiles(steps: Ints) -> list[float]:
    if not len(steps):
        return []
    values, counts = np.unique(steps, return_counts=True)
    times = [latency_us(step) for step in values.tolist()]
    return [percentile(times, counts, share) for share in rules.ANSWER_QUANTILES]


def _back_offs(
    configured: Mapping[_Key, float], measured: Mapping[_Key, Summary], duplicates: Sequence[Summary]
) -> Iterator[Summary]:
    """Yield the rows of receivers' back-offs, by how often packets were requested."""
    for asked in duplicates:
        key, trip = (asked["segment"], "receiver", _BACK_OFF), (asked["segment"], "receiver", _REPETITION)
        if key not in configured or trip not in measured:
            continue
        answers = {name: measured[trip][name] for name in ("answers_p50_ms", "answers_p99_ms")}
        set_ms, early, trip_ms = configured[key], asked["asked_ratio"], answers["answers_p50_ms"]
        is_early = early is not None and early > rules.CROWDED
        is_alone = early is not None and early < rules.ALONE
        is_long = is_alone and trip_ms is not None and set_ms > rules.LONG_BACK_OFF * trip_ms
        row = _row(key, set_ms, {**answers, "fired": asked["asked"], "early": early})
        yield {**row, "verdict": _verdict(is_early, is_long)}
