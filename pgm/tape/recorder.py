"""TapeRecorder: keeps the inputs of one core on a tape.

While a tape is kept, the core's class is a subclass made for it, whose input methods write a record before the call and
add its effects to the hash afterwards. The same holds for objects that the core asks: what they answer is written. A
core without a tape is untouched, so its fast path costs nothing more.
"""

from __future__ import annotations

import functools
import struct
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from pgm.core.acked.ack_bound import AT_ONCE
from pgm.core.interface import Core
from pgm.core.loss_observer import NO_OBSERVER
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel, Segment
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.source.feeder import MessageBatcher, NoBatcher
from pgm.core.source.source import SourceCore
from pgm.errors import PgmError, TapeError
from pgm.parameters import Parameters
from pgm.tape import records
from pgm.tape.effect_hash import EffectHash
from pgm.tape.records import TapeRecordKind
from pgm.tape.segments import SegmentRing, write_state
from pgm.tape.state import save
from pgm.tape.state_process import StateProcess
from pgm.units import KIB, MIB, MILLISECOND
from pgm.wire.formats import Nla
from pgm.wire.train import Train

# Calls of a core from outside, beside `receive` and `handle_deadline`.
CALLS = (
    "status", "release",
    "submit", "submit_rows", "close", "abort", "set_rate", "advance_trail", "close_window", "put_state",
    "grant", "taken", "charge", "resync", "end_all", "leave", "is_missing",
)  # fmt: skip
# Objects outside of a core, the attribute of its setup that holds each, and the calls that they answer.
OUTSIDERS: Mapping[str, tuple[str, ...]] = {"ack_bound": ("acked", "leave"), "starts": ("start_of",)}
_SMALL = frozenset({"grant", "taken", "charge", "is_missing"})  # calls after each read, which leave with the next one
BATCHER = "batcher"
_REFUSALS = (PgmError, TypeError, ValueError)  # errors of a call that leave the core as it was
_CHECK_INPUTS = 256
_CHECK_IVL = 100 * MILLISECOND
_MOST_ERROR_CHARACTERS = 4000
_SEGMENTS_AN_AGE = 8
_FORK_OCTETS = 4 * MIB  # from this size on a child saves the state: it takes 10 ms and more
_BESIDE = (TapeRecordKind.NESTED, TapeRecordKind.RESULT, TapeRecordKind.OUTSIDE)  # records that belong to an input
# Room that an input leaves in its segment for records beside it: a batcher submits messages of some packets.
_RESERVE_OCTETS, _BATCHER_RESERVE_OCTETS = 8 * KIB, 160 * KIB


@attrs.frozen
class TapeLimits:
    """Bounds of a tape."""

    octets: int
    age_ns: int

    @classmethod
    def of(cls, parameters: Parameters) -> TapeLimits:
        """Return the bounds that the parameters name."""
        return cls(parameters.tape_bytes, parameters.tape_secs)


@attrs.define
class TapeCounts:
    """What was written."""

    inputs: int = 0
    states: int = 0
    state_octets: int = 0  # of the last state that is known
    state_ns: int = 0  # for which the last state stopped the node
    lost_inputs: int = 0  # after the tape ended early


class TapeRecorder:
    """TapeRecorder of one core, from `begin` to `end`."""

    def __init__(
        self,
        core: Core,
        segments: Sequence[Segment],
        ring: SegmentRing,
        limits: TapeLimits,
        description: Mapping[str, Any],
        log: Callable[[str, str], None] = lambda _code, _text: None,
    ) -> None:
        self._core = core
        self._segments = tuple(segments)
        self._ring = ring
        self._limits = limits
        self._description = description
        self._log = log
        self._hash = EffectHash()
        self._class = type(core)
        self._is_inside = False  # whether the core runs
        self._is_on = False
        self._peers: dict[Nla, int] = {}
        self._checked_inputs = self._checked_ns = 0
        self._unlogged = ""  # why the tape ended; told after the core's call
        self._now_ns = 0
        self._batcher: _RecordedBatcher | None = None
        self._outsiders: dict[str, tuple[Any, type]] = {}  # by name, with their classes
        self._states = StateProcess()
        self.counts = TapeCounts()
        self._reserve_octets = _RESERVE_OCTETS

    @property
    def folder(self) -> Path:
        """Folder of the tape."""
        return self._ring.folder

    @property
    def fold(self) -> int:
        """Hash of all effects since the tape began."""
        return self._hash.fold

    @property
    def is_on(self) -> bool:
        """Whether the tape goes on."""
        return self._is_on

    # Begin and end

    def begin(self, now_ns: int) -> None:
        """Begin the tape with the state of the core. Raises `TapeError`."""
        core = self._core
        self._now_ns = now_ns
        if isinstance(core, (SourceCore, ReceiverCore)):
            core.single.close()
        setup = getattr(core, "setup", None)
        for name, calls in OUTSIDERS.items():
            outsider = getattr(setup, name, None)
            if outsider is not None and outsider is not AT_ONCE and outsider is not BY_PARAMETERS:
                self._outsiders[name] = outsider, type(outsider)
                outsider.__class__ = self._recorded_outsider(type(outsider), name, calls)
        if isinstance(core, SourceCore) and not isinstance(core.batcher, NoBatcher):
            self._batcher = _RecordedBatcher(self, core.batcher)
            core.attach(self._batcher)
            self._reserve_octets = _BATCHER_RESERVE_OCTETS
        try:
            self._open()
        except BaseException:
            self._restore()
            raise
        core.__class__ = self._recorded_class()
        self._is_on = True

    def end(self, error: BaseException | None = None) -> None:
        """End the tape; `error` ended the node."""
        if self._is_on:
            try:
                self._write_end(error)
            finally:
                self._stop()

    def _stop(self) -> None:
        self._is_on = False
        self._restore()
        self._ring.close_segment()
        self._states.reap(waits=True)

    def _restore(self) -> None:
        if type(self._core) is not self._class:
            self._core.__class__ = self._class
        for outsider, kind in self._outsiders.values():
            outsider.__class__ = kind
        self._outsiders.clear()
        if self._batcher is not None:
            cast("SourceCore", self._core).attach(self._batcher.batcher)
            self._batcher = None

    # The core

    def _recorded_class(self) -> type:
        """Return the class of the core with input methods that write."""
        kind = self._class
        members: dict[str, Any] = {
            "__slots__": (),
            "__module__": kind.__module__,
            "receive": self._receive(kind.receive),
            "handle_deadline": self._handle_deadline(kind.handle_deadline),
        }
        for name in CALLS:
            if hasattr(kind, name):
                members[name] = self._call(name, getattr(kind, name))
        return type(kind.__name__, (kind,), members)

    def _receive(self, receive: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(core: Core, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Any:
            if self._is_inside:
                return receive(core, train, channel, peer, now_ns)
            self._write_train(train, channel, peer, now_ns)
            return self._run("receive", functools.partial(receive, core, train, channel, peer, now_ns))

        return recorded

    def _handle_deadline(self, handle_deadline: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(core: Core, now_ns: int) -> Any:
            if self._is_inside:
                return handle_deadline(core, now_ns)
            self._write(TapeRecordKind.DEADLINE, now_ns)
            return self._run("handle_deadline", functools.partial(handle_deadline, core, now_ns))

        return recorded

    def _call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(core: Core, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                if self._batcher is not None and self._batcher.is_submitting:
                    self._write(TapeRecordKind.NESTED, self._now_ns, records.encode([name, args, kwargs]))
                return call(core, *args, **kwargs)
            self._write(
                TapeRecordKind.CALL, self._now_ns, records.encode([name, args, kwargs]), is_urgent=name not in _SMALL
            )
            return self._run(name, functools.partial(call, core, *args, **kwargs))

        return recorded

    def _run(self, name: str, call: Callable[[], Any]) -> Any:
        """Run one call of the core, and add its outcome to the hash."""
        self._is_inside = True
        try:
            result = call()
        except _REFUSALS as error:
            self._is_inside = False
            self._hash.add_text(f"refused: {type(error).__name__}", self._core.deadline_ns)
            raise
        except BaseException as error:
            self._is_inside = False
            if self._is_on:
                self._write_end(error)
                self._stop()
            raise
        self._is_inside = False
        if self._unlogged:
            text, self._unlogged = self._unlogged, ""
            self._log("tape-ended", text)
        add_outcome(self._hash, name, result, self._core.deadline_ns)
        return result

    # Objects outside

    def _recorded_outsider(self, kind: type, name: str, calls: Sequence[str]) -> type:
        members: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__}
        for call in calls:
            members[call] = self._answer(f"{name}.{call}", getattr(kind, call))
        return type(kind.__name__, (kind,), members)

    def _answer(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(outsider: object, *args: Any) -> Any:
            was_inside, self._is_inside = self._is_inside, False
            try:
                result = call(outsider, *args)
            finally:
                self._is_inside = was_inside
            if was_inside:
                self._write(TapeRecordKind.RESULT, self._now_ns, records.encode([name, result]))
            return result

        return recorded

    def write_outside(self, value: int) -> None:
        """Write the deadline of the batcher, which has changed."""
        self._write(TapeRecordKind.OUTSIDE, self._now_ns, records.encode([BATCHER, value]))

    # Writing

    def _write(self, kind: TapeRecordKind, now_ns: int, body: bytes = b"", *, is_urgent: bool = True) -> None:
        """Write an input, or what belongs to one. It leaves at once if it is urgent, or else with the next input."""
        if not self._is_on:
            self.counts.lost_inputs += kind not in _BESIDE
            return
        if kind in _BESIDE:  # leaves with the next input
            self._put(kind, body)
            return
        self._begin_input(now_ns, records.HEAD.size + len(body))
        if self._is_on:
            self._put(kind, body)
            if is_urgent:
                self._flush()

    def _put(self, kind: TapeRecordKind, body: bytes, tag: records.Tag = records.NO_TAG) -> None:
        record = records.build(kind, tag, self._now_ns, self._hash.fold, body)
        self._ring.put(record, records.padding(len(record)))

    def _write_train(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        if not self._is_on:
            self.counts.lost_inputs += 1
            return
        part, octets, keeping, buffer = _part_of(train), train.length, train.keeping, train.buffer
        self._begin_input(now_ns, records.HEAD.size + records.TRAIN.size + len(part) + octets)
        if not self._is_on:
            return
        number = self._peers.get(peer)
        if number is None:
            number = self._add_peer(peer)
        place = records.TRAIN.pack(
            id(buffer), buffer.nbytes, train.offset, octets, train.stride, keeping.end, keeping.room, len(part)
        )
        tag = channel.segment.index << 1 | channel.is_group, number
        head = records.build(TapeRecordKind.RECEIVE, tag, now_ns, self._hash.fold, place, len(part) + octets)
        datagrams = buffer.data[train.offset : train.offset + octets]
        self._ring.put(head, part, datagrams, records.padding(len(head) + len(part) + octets))
        self._flush()

    def _flush(self) -> None:
        try:
            self._ring.flush()
        except OSError as error:
            self._give_up(str(error))

    def _add_peer(self, peer: Nla) -> int:
        if len(self._peers) >= records.MOST_PEERS:
            self._peers.clear()
        number = self._peers[peer] = len(self._peers)
        self._put(TapeRecordKind.PEER, peer.encode(), (0, number))
        return number

    def _begin_input(self, now_ns: int, length: int) -> None:
        """Make room for a record, and write what precedes an input."""
        self._now_ns = now_ns
        ring, needed = self._ring, length + self._reserve_octets
        if ring.at + needed > ring.limit or now_ns - ring.begun_ns > self._limits.age_ns // _SEGMENTS_AN_AGE:
            self._rotate(now_ns, needed)
            if not self._is_on:
                return
        self.counts.inputs += 1
        if self._batcher is not None:
            self._batcher.write_changed()
        is_due = self.counts.inputs - self._checked_inputs >= _CHECK_INPUTS or now_ns - self._checked_ns >= _CHECK_IVL
        if is_due:
            self._put_check()

    def _put_check(self) -> None:
        self._checked_inputs, self._checked_ns = self.counts.inputs, self._now_ns
        self._put(TapeRecordKind.CHECK, self._hash.digest)

    def _write_end(self, error: BaseException | None) -> None:
        self._put_check()
        text = "" if error is None else "".join(traceback.format_exception(error))[-_MOST_ERROR_CHARACTERS:]
        self._put(TapeRecordKind.END, text.encode())
        self._flush()

    # Segments

    def _rotate(self, now_ns: int, needed: int) -> None:
        """Begin the next segment. A tape that cannot go on ends, with a line in the log."""
        if needed > self._ring.most_record_octets:
            self._give_up(f"one read or call has {needed} octets, and tape_bytes has no room for it")
            return
        self._put_check()
        try:
            self._ring.flush()
            self._open()
            self._ring.drop_older(now_ns - self._limits.age_ns)
        except (OSError, TapeError) as error:
            self._give_up(error.message if isinstance(error, TapeError) else str(error))

    def _give_up(self, reason: str) -> None:
        self._is_on = False
        self._ring.close_segment()
        self._unlogged = f"the tape in {self._ring.folder} ends here: {reason}"

    def _open(self) -> None:
        """Begin a segment with the state of the core. A large state is saved by a child of this process."""
        begun_ns = time.perf_counter_ns()
        self._states.reap()
        description = dict(self._description) | {
            "fold": self._hash.fold, "inputs": self.counts.inputs, "now_ns": self._now_ns,
        }  # fmt: skip
        if self.counts.state_octets >= _FORK_OCTETS and not self._states.has_failed:
            room = min(2 * self.counts.state_octets + MIB, self._ring.most_state_octets)
            segment = self._ring.open(description, self._now_ns, room)
            self._states.save(segment, self._save, room)
            self.counts.state_octets = self._states.octets or self.counts.state_octets
        else:
            self._states.has_failed = False
            state = self._save()
            octets = self.counts.state_octets = sum(map(len, state))
            if octets > self._ring.most_state_octets:
                raise TapeError(
                    f"the state of the node has {octets} octets, and the tape room for {self._ring.most_state_octets}",
                    remedy=f"raise tape_bytes to {4 * octets}",
                )
            write_state(self._ring.open(description, self._now_ns, octets), state)
        self.counts.states += 1
        self._peers.clear()
        if self._batcher is not None:
            self._batcher.forget()
        self._hash.restart()
        self.counts.state_ns = time.perf_counter_ns() - begun_ns

    def _save(self) -> list[bytes | memoryview]:
        """Return the state of the core, without what lies outside of it."""
        core, kind, counters = self._core, type(self._core), self._core.counters
        watch, counters.watch = counters.watch, NO_OBSERVER
        outsiders = {id(outsider): name for name, (outsider, _) in self._outsiders.items()}
        if self._batcher is not None:
            outsiders[id(self._batcher)] = BATCHER
        core.__class__ = self._class
        try:
            return save({"core": core, "segments": self._segments}, outsiders)
        finally:
            core.__class__ = kind
            counters.watch = watch


class _RecordedBatcher:
    """Batcher of a source that writes when its deadline changes, and what it submits."""

    def __init__(self, recorder: TapeRecorder, batcher: MessageBatcher) -> None:
        self._recorder = recorder
        self.batcher = batcher
        self._written_ns: int | None = None  # in the open segment
        self.is_submitting = False

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.batcher.deadline_ns

    def handle_deadline(self, now_ns: int) -> None:
        """Let the batcher submit. Write what it submits, and the end of its call."""
        self.is_submitting = True
        try:
            self.batcher.handle_deadline(now_ns)
        finally:
            self.is_submitting = False
        self._write()

    def forget(self) -> None:
        """Forget what was written: a segment begins."""
        self._written_ns = None

    def write_changed(self) -> None:
        """Write the deadline if it has changed."""
        if self.batcher.deadline_ns != self._written_ns:
            self._write()

    def _write(self) -> None:
        self._written_ns = deadline_ns = self.batcher.deadline_ns
        self._recorder.write_outside(deadline_ns)


def _part_of(train: Train) -> bytes:
    """Return which items of a read the core gets: whether its rejects, and the numbers of the items; b"" for all."""
    if train.whole is None:
        return b""
    items, rejects = train.parse_scattered_untrusted()
    wanted = set(map(id, items))
    numbers = [number for number, item in enumerate(train.whole.parse_scattered_untrusted()[0]) if id(item) in wanted]
    return struct.pack(f"<{len(numbers) + 1}H", bool(rejects), *numbers)


def add_outcome(effects: EffectHash, name: str, result: Any, deadline_ns: int) -> None:
    """Add what a call returned to a hash. A status has counters of the driver, which no replay knows."""
    if name == "status":
        effects.add((), deadline_ns)
    elif isinstance(result, (list, tuple)):
        effects.add(result, deadline_ns)
    else:
        effects.add_text(repr(result), deadline_ns)
