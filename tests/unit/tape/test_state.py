"""Saved states: arrays keep their places, and no state names code outside of the cores."""

import os
import pickle
import struct
import sys
import types
import zlib

import numpy as np
import pytest

from pgm.core.loss_observer import NO_OBSERVER
from pgm.core.structures.arena import Arena, ProcessMemory
from pgm.errors import TapeError
from pgm.tape.state import load, save
from pgm.wire.train import Run


def reloaded(value):
    return load(b"".join(save(value, {})), {}).value


def test_state_keeps_views_of_one_memory():
    base = np.arange(100, dtype=np.uint8)
    whole, part, rows, back, view = reloaded(
        [base, base[10:20], base[20:40].reshape(4, 5)[:, 2:], base[::-3], base.data]
    )
    assert np.array_equal(part, np.arange(10, 20))
    assert np.array_equal(rows, base[20:40].reshape(4, 5)[:, 2:])
    assert np.array_equal(back, base[::-3])
    whole[:] = 7
    assert set(part) == set(rows.ravel()) == set(back) == set(view) == {7}


def test_state_keeps_empty_and_other_arrays():
    arrays = [np.empty(0, np.uint8), np.arange(4, dtype=">u4"), np.zeros((0, 3), np.int64), np.array(5)]
    for array, found in zip(arrays, reloaded(arrays), strict=True):
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        assert found.shape == array.shape


def test_state_keeps_arrays_that_may_not_be_written():
    (array,) = reloaded([np.frombuffer(b"abc", np.uint8)])
    assert not array.flags.writeable


def test_state_leaves_out_octets_of_chunks_without_packets():
    chunk = np.full(1 << 20, ord("S"), np.uint8)  # what other parts of the process left there
    chunk[1000:3000] = 7
    run = Run(5, 2, chunk, 1000, 1000, 24)
    octets = b"".join(save([run, chunk], {}))
    assert b"SSSS" not in octets
    assert len(octets) < 4000
    found, same = load(octets, {}).value
    assert found.buffer is same
    assert np.array_equal(found.rows, run.rows)
    assert found.buffer.nbytes == chunk.nbytes


def test_state_of_an_arena_has_its_packets_alone():
    arena = Arena(memory=DirtyMemory())
    chunk, at = arena.put(b"packet" * 4)
    run = Run(0, 1, chunk, at, 24, 24)
    octets = b"".join(save([arena, run], {}))
    assert b"SSSS" not in octets
    found, packet = load(octets, {}).value
    assert bytes(packet.rows.data) == b"packet" * 4
    assert found.put(b"more") == (packet.buffer, 24)  # beside it, as before


class DirtyMemory(ProcessMemory):
    def untouched(self, octets):
        return np.full(octets, ord("S"), np.uint8)


DirtyMemory.__module__ = "pgm.core.tests"  # a state takes no classes of tests
sys.modules.setdefault("pgm.core.tests", types.ModuleType("pgm.core.tests")).DirtyMemory = DirtyMemory


def test_state_keeps_constants_of_the_cores_and_objects_outside():
    outsider = object()
    found = load(b"".join(save([NO_OBSERVER, outsider], {id(outsider): "outside"})), {"outside": "here"}).value
    assert found == [NO_OBSERVER, "here"]
    assert found[0] is NO_OBSERVER


@pytest.mark.parametrize("value", [lambda: 0, open(os.devnull), object()])  # noqa: SIM115
def test_state_with_other_objects_is_refused(value):
    with pytest.raises(TapeError):
        save([value], {})


class Attack:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        (os.system, ("true",)),
        (eval, ("1",)),
        (getattr, (save, "__globals__")),
        (print, ("no",)),
        (pickle.loads, (b"N.",)),
    ],
)
def test_state_that_names_other_code_is_refused(call):
    octets = bytearray(b"".join(save([], {})))
    good = pickle.dumps([], protocol=5)
    bad = pickle.dumps(Attack(*call), protocol=5)
    assert octets.endswith(good)
    attack = forged(bytes(octets[: -len(good)]), bad)
    with pytest.raises(TapeError):
        load(attack, {})


def forged(head: bytes, pickled: bytes) -> bytes:
    """Return a state with another pickle and a fitting checksum."""
    magic, _, _, blocks, arrays = struct.unpack("<8sIQQQ", head)
    rest = struct.pack("<QQQ", len(pickled), blocks, arrays) + pickled
    return struct.pack("<8sI", magic, zlib.crc32(rest)) + rest


def test_state_that_is_damaged_is_refused():
    octets = bytearray(b"".join(save([1, 2, np.arange(9)], {})))
    for at in range(0, len(octets), 7):
        damaged = octets.copy()
        damaged[at] ^= 0x55
        with pytest.raises(TapeError):
            load(bytes(damaged), {})
    with pytest.raises(TapeError):
        load(bytes(octets[:-3]), {})
