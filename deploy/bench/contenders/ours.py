"""pgm's own contenders: its drivers, flow controls and ways to take messages."""

from __future__ import annotations

from functools import partial

from deploy.bench.contender import Contender, Job, Program, python_peer

_LARGEST_EACH = 1472  # octets; for larger messages the loop over messages takes too small a share of the time


def _why_not_each(job: Job) -> str:
    return "" if job.size <= _LARGEST_EACH else "differs from batches only for small messages"


def _loop(*, each: bool = False, batched: bool = False, **keys: object) -> Program:
    return python_peer("ours.event_loop", each=each, batched=batched, **keys)


def _busy_poll(*, batched: bool = False) -> Program:
    return python_peer("ours.busy_poll", batched=batched)


def _blocking(*, batched: bool = False) -> Program:
    return python_peer("ours.blocking", each=False, batched=batched)


_ours = partial(Contender, is_ours=True)
_STREAMS = ("throughput", "latency", "repair", "pacing")
_MESSAGES = ("messages",)  # that share packets, with ten subjects, and a receiver with a wildcard subscription

OURS = (
    _ours("ours-trio", "pgm, trio", (*_STREAMS, "relay", "scale"), _loop()),
    _ours("ours-asyncio", "pgm, asyncio", ("throughput", "latency"), _loop(loop="asyncio")),
    _ours("ours-acked", "pgm, acked", ("throughput",), _loop(flow="acked")),
    _ours("ours-each", "pgm, trio, async for", ("throughput",), _loop(each=True), _why_not_each),
    _ours("ours-blocking", "pgm, thread, each sent", ("throughput",), _blocking(), _why_not_each),
    _ours("ours-streams", "pgm, 16 streams", ("throughput",), python_peer("ours.streams", streams=16, batched=False)),
    _ours("ours-busy-poll", "pgm, busy-poll", _STREAMS, _busy_poll(), is_busy_poll=True),
    _ours("ours-messages", "pgm, batches()", _MESSAGES, _loop(batched=True)),
    _ours("ours-messages-asyncio", "pgm, batches(), asyncio", _MESSAGES, _loop(batched=True, loop="asyncio")),
    _ours("ours-messages-blocking", "pgm, thread, each sent", _MESSAGES, _blocking(batched=True)),
    _ours("ours-messages-each", "pgm, async for", _MESSAGES, _loop(each=True, batched=True)),
    _ours(
        "ours-messages-busy-poll", "pgm, batches(), busy-poll", _MESSAGES, _busy_poll(batched=True), is_busy_poll=True
    ),
)
OURS_TRIO = OURS[0]
OURS_MESSAGES = next(one for one in OURS if one.name == "ours-messages")
