"""Replay of a tape: the same core, the same inputs, and the proof that it does the same again.

`Replay` begins at the oldest state of a tape, and gives the core one input after the other. Each record has the hash of
all effects before it, so the first input whose effects differ is known. Checks have a digest of all effects since their
segment began.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from pgm.core.effects import NOTHING, Effects
from pgm.core.interface import Core
from pgm.core.segment import Channel, Segment
from pgm.errors import PgmError, TapeError
from pgm.tape import records
from pgm.tape.effect_hash import EffectHash
from pgm.tape.recorder import BATCHER, CALLS, OUTSIDERS, add_outcome
from pgm.tape.records import TapeRecord, TapeRecordKind
from pgm.tape.segments import ReadSegment, TapeSegment, read_segment, segments_of
from pgm.tape.state import load
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.train import Train


@attrs.frozen
class ReplayStep:
    """One input of the core, and what the core did."""

    number: int  # of the input since the tape began
    segment: int
    record: TapeRecord
    name: str  # receive, handle_deadline, or the name of the call
    arguments: tuple[Any, ...]
    train: Train | None
    channel: Channel | None
    peer: Nla
    effects: Effects
    result: Any  # of a call without effects
    refused: str  # name of the error by which the core refused the call
    deadline_ns: int


class Differs(TapeError):
    """The core did something else than on the tape."""


class _Batcher:
    """Batcher of a source on a tape: its deadline, and what it submitted."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.deadline_ns = NEVER

    def handle_deadline(self, now_ns: int) -> None:
        """Submit what the batcher submitted."""
        self._replay.run_nested()


class _Outsider:
    """Object that a core asks, on a tape: its answers in order."""

    def __init__(self, replay: Replay, name: str, calls: Sequence[str]) -> None:
        for call in calls:
            setattr(self, call, self._answer(replay, f"{name}.{call}"))

    @staticmethod
    def _answer(replay: Replay, name: str) -> Callable[..., Any]:
        def answer(*_args: Any) -> Any:
            return replay.take_result(name)

        return answer


class Replay:
    """Replay of the tape in a folder. Iterate over `steps`, or call `run`."""

    def __init__(self, folder: Path, from_segment: int = 0) -> None:
        """Load the oldest state of the tape, from a segment on. Raises `TapeError`."""
        self._segments = _usable(folder, from_segment)
        first = self._first = read_segment(self._segments[0])
        self.description: Mapping[str, Any] = first.description
        self._batcher = _Batcher(self)
        outsiders: dict[str, object] = {name: _Outsider(self, name, calls) for name, calls in OUTSIDERS.items()}
        loaded = load(first.segment.state_path.read_bytes(), outsiders | {BATCHER: self._batcher})
        self.core: Core = loaded.value["core"]
        self.segments: tuple[Segment, ...] = loaded.value["segments"]
        self._chunks: weakref.WeakValueDictionary[tuple[int, int], np.ndarray[Any, Any]] = loaded.arrays
        self._channels: dict[int, Channel] = {}
        self._peers: dict[int, Nla] = {}
        self._hash = EffectHash(first.description["fold"])
        self._records: Iterator[tuple[ReadSegment, TapeRecord]] = self._read()
        self._ahead: tuple[ReadSegment, TapeRecord] | None = None
        self.inputs: int = first.description["inputs"]
        self.first_input = self.inputs  # inputs before the state from which the replay began
        self.begun_ns: int = first.description["now_ns"]
        self.now_ns = self.begun_ns
        self.checks = 0
        self.checked_inputs = self.inputs  # proved by the last check
        self.error: Exception | None = None  # by which the core has ended the node, on the tape too
        self.end: str | None = None  # the last words of the node; None for one that was killed

    @property
    def fold(self) -> int:
        """Hash of all effects since the tape began."""
        return self._hash.fold

    # Records

    def _read(self) -> Iterator[tuple[ReadSegment, TapeRecord]]:
        segment = self._first
        for index, usable in enumerate(self._segments):
            if index:
                segment = read_segment(usable)
                if segment.description["inputs"] != self.inputs:
                    raise TapeError(f"records are missing before {segment.segment.path}")
            self._peers.clear()
            self._hash.restart()
            for record in segment.records():
                yield segment, record

    def _next(self) -> tuple[ReadSegment, TapeRecord] | None:
        ahead, self._ahead = self._ahead, None
        return ahead or next(self._records, None)

    def run_nested(self) -> None:
        """Run the calls that the batcher made during a call of the core."""
        while (entry := self._next()) is not None:
            record = entry[1]
            if record.kind is TapeRecordKind.NESTED:
                name, args, kwargs = records.decode_untrusted(record.body)
                self._method(name)(*args, **kwargs)
                continue
            if record.kind is TapeRecordKind.OUTSIDE:
                self._take_outside(record)
                return
            self._ahead = entry
            raise Differs(f"the batcher of input {self.inputs} is called, and was not on the tape")

    def take_result(self, name: str) -> Any:
        """Return the next answer of an object outside of the core."""
        entry = self._next()
        if entry is not None and entry[1].kind is TapeRecordKind.RESULT:
            known, result = records.decode_untrusted(entry[1].body)
            if known == name:
                return result
        self._ahead = entry
        raise Differs(f"the core asks {name} in input {self.inputs}, and did not on the tape")

    def _take_outside(self, record: TapeRecord) -> None:
        name, value = records.decode_untrusted(record.body)
        if name != BATCHER:
            raise TapeError(f"the tape has a value of {name}, which is unknown")
        self._batcher.deadline_ns = value

    # Steps

    def steps(self) -> Iterator[ReplayStep]:
        """Yield each input after the core has taken it. Raises `Differs` where the core does something else."""
        while (entry := self._next()) is not None:
            segment, record = entry
            self._compare(record, segment)
            if record.kind is TapeRecordKind.PEER:
                self._peers[record.peer] = bytes(record.body).decode()
            elif record.kind is TapeRecordKind.CHECK:
                self._check(record, segment)
            elif record.kind is TapeRecordKind.OUTSIDE:
                self._take_outside(record)
            elif record.kind is TapeRecordKind.END:
                self.end = bytes(record.body).decode()
            elif record.kind in (TapeRecordKind.NESTED, TapeRecordKind.RESULT):
                raise Differs(f"input {self.inputs} of the tape has calls that the core did not make")
            else:
                yield self._step(segment, record)
                self._require_end()

    def _require_end(self) -> None:
        """Raise `Differs` if the core has raised an error that did not end the node on the tape."""
        if self.error is None:
            return
        for _, record in self._records:
            if record.kind is TapeRecordKind.END and type(self.error).__name__ in bytes(record.body).decode():
                self.end = bytes(record.body).decode()
                return
        raise Differs(f"input {self.inputs} raises {self.error!r}, and did not on the tape", remedy=_REMEDY)

    def run(self) -> Effects:
        """Replay all. Returns nothing."""
        for _ in self.steps():
            pass
        return NOTHING

    def _compare(self, record: TapeRecord, segment: ReadSegment) -> None:
        if record.fold != self._hash.fold:
            raise Differs(
                f"input {self.inputs} has other effects than on the tape: {segment.segment.path} at {record.at}",
                remedy=_REMEDY,
            )

    def _check(self, record: TapeRecord, segment: ReadSegment) -> None:
        if bytes(record.body) != self._hash.digest:
            raise Differs(
                f"the digest of all effects up to input {self.inputs} differs: {segment.segment.path} at {record.at}",
                remedy=_REMEDY,
            )
        self.checks += 1
        self.checked_inputs = self.inputs

    def _step(self, segment: ReadSegment, record: TapeRecord) -> ReplayStep:
        core, train, channel, peer = self.core, None, None, ""
        name = "handle_deadline"
        args: tuple[Any, ...] = (record.now_ns,)
        kwargs: dict[str, Any] = {}
        self.now_ns = record.now_ns
        if record.kind is TapeRecordKind.RECEIVE:
            train, channel, peer = self._train(record), self._channel(record.flag), self._peers[record.peer]
            name, args = "receive", (train, channel, peer, record.now_ns)
        elif record.kind is TapeRecordKind.CALL:
            name, args, kwargs = records.decode_untrusted(record.body)
        self.inputs += 1
        result: Any = None
        refused = ""
        try:
            result = self._method(name)(*args, **kwargs)
        except Differs:
            raise
        except (PgmError, TypeError, ValueError) as error:
            refused = type(error).__name__
            self._hash.add_text(f"refused: {refused}", core.deadline_ns)
        except Exception as error:
            refused = type(error).__name__
            self.error = error
        else:
            add_outcome(self._hash, name, result, core.deadline_ns)
        has_effects = isinstance(result, (list, tuple)) and name != "status"
        return ReplayStep(
            self.inputs,
            segment.segment.number,
            record,
            name,
            tuple(args),
            train,
            channel,
            peer,
            result if has_effects else NOTHING,
            None if has_effects else result,
            refused,
            core.deadline_ns,
        )

    def _method(self, name: str) -> Callable[..., Any]:
        if name not in ("receive", "handle_deadline", *CALLS):
            raise TapeError(f"the tape calls {name}, which is no input of a core")
        method: Callable[..., Any] = getattr(self.core, name)
        return method

    def _channel(self, flag: int) -> Channel:
        channel = self._channels.get(flag)
        if channel is None:
            channel = self._channels[flag] = Channel(self.segments[flag >> 1], bool(flag & 1))
        return channel

    def _train(self, record: TapeRecord) -> Train:
        """Return the train of a record, at its place in a chunk like that of the node."""
        read = records.train_untrusted(record.body)
        key = read.identity, read.chunk_octets
        chunk = self._chunks.get(key)
        end = read.offset + read.length
        if chunk is None or not chunk.flags.writeable:
            known = chunk
            chunk = np.zeros(read.chunk_octets, np.uint8)
            if known is None or known[read.offset : end].data != read.octets:
                self._chunks[key] = chunk
            elif known is not None:
                chunk = known
        if chunk.flags.writeable:
            chunk.data[read.offset : end] = read.octets
        train = Train(chunk, read.offset, read.length, read.stride)
        train.keeping.end, train.keeping.room = read.end, read.room
        return _part(train, read.part)


_REMEDY = "the code differs from that which wrote the tape, or the core is not deterministic: compare --json of both"


def _part(train: Train, part: bytes) -> Train:
    """Return the part of a train that the core got."""
    if not part:
        return train
    has_rejects, *numbers = np.frombuffer(part, np.uint16).tolist()
    items, rejects = train.parse_scattered_untrusted()
    return train.part([items[number] for number in numbers], rejects if has_rejects else [])


def _usable(folder: Path, from_segment: int) -> list[TapeSegment]:
    """Return the segments of a tape from the oldest state on. Raises `TapeError`."""
    found = segments_of(folder)
    if not found:
        raise TapeError(f"{folder} has no tape", remedy="name a folder that `pgm run --tape` has made")
    while found and (found[0].number < from_segment or not found[0].has_state):
        del found[0]
    if not found:
        raise TapeError(f"the tape in {folder} has no state to begin from", remedy="use another tape")
    numbers = [segment.number for segment in found]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise TapeError(f"segments are missing in {folder}", remedy="copy all files of the tape")
    return found
