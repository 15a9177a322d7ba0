"""The cache file: what comes back is what was saved, whatever happened to the file."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.core.effects import Save
from pgm.core.structures.arena import CHUNK_OCTETS, Arena
from pgm.errors import ProcessError
from pgm.net.cache_file import CacheFile
from pgm.topology.check import load_checked
from pgm.topology.plan import plan_node
from pgm.units import MIB, SECOND
from pgm.wire.train import Run
from repairer.process import cache_path
from tests.folders import short_folder
from tests.net.support.lab import ROOT
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import run_of

FLOOR = ROOT / "deploy" / "topologies" / "trading-floor.toml"
EPOCH_NS = 1_700_000_000 * SECOND
NOW_NS = 1000 * SECOND
SIZE = 300
COUNTS = (3, 1, 5, 2, 4)  # packets of each run
GAP = 2  # sqns that are missing between two runs
RECORD_OCTETS = 64
FIRST_SLOT = 4096


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "tree.node.cache"


def read_into(arena: Arena, run: Run) -> Run:
    """Return a run as if it had been read into the arena."""
    octets = run.rows.reshape(-1)
    chunk, at = arena.room(octets.size)
    chunk[at : at + octets.size] = octets
    arena.keep(octets.size)
    return Run(run.first, run.count, chunk, at, run.stride, run.payload_at)


def save(file: CacheFile, run: Run, at_ns: int = NOW_NS) -> None:
    file.save(Save(TSI, DATA_PORT, EPOCH_NS, run), at_ns)


def filled(path: Path) -> None:
    """Write a file with some runs, and end."""
    file = CacheFile(path, MIB)
    arena, first = Arena(memory=file), 0
    for index, count in enumerate(COUNTS):
        save(file, read_into(arena, run_of(first, count, SIZE)), NOW_NS + index)
        first += count + GAP
    file.close()


def found(path: Path, since_ns: int = 0, now_ns: int = 2 * NOW_NS) -> tuple[set[int], int]:
    """Return the sqns that a file has, all with their right octets, and the number of refused records."""
    file = CacheFile(path, MIB)
    sqns: list[int] = []
    for _, entry in file.saved(since_ns, now_ns):
        assert (entry.tsi, entry.data_port, entry.epoch_ns) == (TSI, DATA_PORT, EPOCH_NS)
        expected = run_of(entry.run.first, entry.run.count, SIZE)
        assert entry.run.rows.tobytes() == expected.rows.tobytes()
        assert entry.run.payload_at == expected.payload_at
        sqns += range(entry.run.first, entry.run.end)
    file.close()
    assert len(sqns) == len(set(sqns))
    return set(sqns), file.counters.cache_records_refused


def all_sqns() -> set[int]:
    sqns, first = set(), 0
    for count in COUNTS:
        sqns |= set(range(first, first + count))
        first += count + GAP
    return sqns


def test_everything_saved_is_found(path: Path) -> None:
    filled(path)
    assert found(path) == (all_sqns(), 0)
    assert found(path) == (all_sqns(), 0)


def test_only_records_between_two_instants_are_found(path: Path) -> None:
    filled(path)
    assert found(path, NOW_NS + 3)[0] == all_sqns() - set(range(3 + 1 + 5 + 3 * GAP))
    assert found(path, 0, NOW_NS)[0] == {0, 1, 2}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_never_yields_a_wrong_packet(data: st.DataObject) -> None:
    """Flip octets, cut the file, or tear a record or a packet, where the file has content."""
    with short_folder() as folder:
        path = folder / "tree.node.cache"
        filled(path)
        octets = SIZE + 24
        regions = [
            (0, 60),
            (FIRST_SLOT, (len(COUNTS) + 3) * RECORD_OCTETS),
            (FIRST_SLOT + 4096 * RECORD_OCTETS, sum(COUNTS) * octets),
        ]
        kind = data.draw(st.sampled_from(["flip", "tear", "cut"]))
        at, length = data.draw(st.sampled_from(regions))
        at += data.draw(st.integers(0, length - 1))
        fd = os.open(path, os.O_RDWR)
        if kind == "flip":
            for place in (at, *data.draw(st.lists(st.integers(at, at + 200), max_size=3))):
                [old] = os.pread(fd, 1, place)
                os.pwrite(fd, bytes([old ^ data.draw(st.integers(1, 255))]), place)
        elif kind == "tear":
            os.pwrite(fd, data.draw(st.binary(min_size=1, max_size=200)), at)
        else:
            os.ftruncate(fd, at)
        os.close(fd)
        assert found(path)[0] <= all_sqns()
        assert found(path)[0] <= all_sqns()


def test_a_file_of_anything_is_an_empty_one(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))
    path.chmod(0o600)
    assert found(path) == (set(), 0)


def test_a_record_before_the_reuse_of_its_chunk_counts_no_more(path: Path) -> None:
    file = CacheFile(path, MIB)
    arena = Arena(memory=file)
    save(file, read_into(arena, run_of(0, 4, SIZE)))
    arena.room(CHUNK_OCTETS)  # the same chunk: nothing refers to it
    assert arena.chunks == 1
    del arena
    file.close()
    del file
    assert found(path)[0] == set()


def test_a_chunk_with_saved_packets_is_not_read_into(path: Path) -> None:
    filled(path)
    file = CacheFile(path, MIB)
    saved = list(file.saved(0, 2 * NOW_NS))
    arena = Arena(memory=file)
    for _ in range(3):
        chunk, at = arena.room(CHUNK_OCTETS)
        chunk[at:] = 0xEE
        arena.keep(CHUNK_OCTETS)
    for _, entry in saved:
        assert entry.run.rows.tobytes() == run_of(entry.run.first, entry.run.count, SIZE).rows.tobytes()


def test_a_second_process_adds_to_what_the_first_one_saved(path: Path) -> None:
    filled(path)
    file = CacheFile(path, MIB)
    saved = list(file.saved(0, 2 * NOW_NS))
    arena = Arena(memory=file)
    save(file, read_into(arena, run_of(1000, 4, SIZE)))
    del arena, saved
    file.close()
    del file
    assert found(path) == (all_sqns() | set(range(1000, 1004)), 0)


def test_packets_from_elsewhere_are_copied_into_the_file(path: Path) -> None:
    file = CacheFile(path, MIB)
    arena = Arena(memory=file)
    save(file, run_of(7, 3, SIZE))
    del arena
    file.close()
    del file
    gc.collect()  # the file and the arena of copies refer to each other
    assert found(path) == ({7, 8, 9}, 0)


def test_a_slot_without_a_free_record_counts_what_it_cannot_save(path: Path) -> None:
    file = CacheFile(path, MIB)
    run = read_into(Arena(memory=file), run_of(0, 2, SIZE))
    for _ in range(4100):
        save(file, run)
    assert file.counters.cache_packets_unsaved == 2 * 5


def test_a_full_folder_leaves_the_cache_without_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    file = CacheFile(path, MIB, lambda code, _: said.append(code))

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    arena = Arena(memory=file)
    for _ in range(3):
        arena.room(CHUNK_OCTETS)
        save(file, read_into(arena, run_of(0, 2, SIZE)))
    assert said == ["cache-file-full"]
    assert file.counters.cache_packets_unsaved == 6


def test_a_file_leaves_room_to_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    file = CacheFile(path, MIB, lambda code, _: said.append(code))
    status = os.statvfs(path)
    nearly_full = os.statvfs_result((4096, 4096, 10_000, 2000, 2000, *tuple(status)[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _: nearly_full)  # 41 MB, 8 MB free
    arena = Arena(memory=file, warm_octets=4 * CHUNK_OCTETS)
    assert said == ["cache-file-full"]
    assert os.stat(path).st_blocks * 512 < CHUNK_OCTETS
    assert arena.chunks == 5


def test_path_is_in_the_folder_of_the_plan_or_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_node(load_checked(FLOOR), "floor-2-repairer")
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    assert cache_path(plan) is None
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/pgm:/run/other")
    assert cache_path(plan) == Path(f"/run/pgm/{plan.topology}.floor-2-repairer.cache")
    assert cache_path(attrs.evolve(plan, cache_directory="/srv/cache")).parent == Path("/srv/cache")
    assert cache_path(attrs.evolve(plan, cache_directory="")) is None


def test_a_smaller_cache_takes_what_its_file_holds(path: Path) -> None:
    file = CacheFile(path, 64 * MIB)
    arena = Arena(memory=file, warm_octets=64 * MIB)
    save(file, read_into(arena, run_of(0, 2, SIZE)))
    del arena
    file.close()
    del file
    found(path)
    assert path.stat().st_size < 128 * MIB


def test_a_file_that_others_may_use_is_refused(path: Path) -> None:
    filled(path)
    path.chmod(0o640)
    with pytest.raises(ProcessError, match="mode 0640"):
        CacheFile(path, MIB)


def test_a_link_is_refused(path: Path) -> None:
    filled(path)
    other = path.with_name("other.cache")
    other.symlink_to(path)
    with pytest.raises(ProcessError, match="cannot be opened"):
        CacheFile(other, MIB)
    other.unlink()
    other.hardlink_to(path)
    with pytest.raises(ProcessError, match="one name"):
        CacheFile(other, MIB)


def test_a_file_in_use_is_refused(path: Path) -> None:
    file = CacheFile(path, MIB)
    with pytest.raises(ProcessError, match="in use"):
        CacheFile(path, MIB)
    file.close()


def test_a_file_of_an_earlier_boot_is_an_empty_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    boot_id = path.with_name("boot_id")
    boot_id.write_text("00000000-0000-0000-0000-000000000000\n")
    monkeypatch.setattr("pgm.own_files._BOOT_ID", boot_id)
    assert found(path) == (set(), 0)
