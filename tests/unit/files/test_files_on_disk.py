"""From packets to files on a disk, despite losses, duplicates and damage.

A file under its final name is right, and no file lies outside the folder.
"""

from __future__ import annotations

import hashlib
import os
import random
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgm.errors import ProcessError, UsageError
from pgm.files.assembly import FileAssembly
from pgm.files.census import Census
from pgm.files.manifest import DIGESTS, FileEntry, Manifest
from pgm.files.packets import TransferAnswer, TransferState
from pgm.files.scanning import FileOffering, FileReader, scan
from pgm.files.storing import FileStore, partial_name

UNIT = 10
BLOCK = 50


class BlockStore:
    """Store of blocks in memory."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}

    def write(self, block: int, first: int, octets: np.ndarray) -> None:
        assert first == block * BLOCK
        self.blocks[block] = octets.tobytes()

    def take_back(self, block: int) -> None:
        del self.blocks[block]


def units(octets: bytes) -> list[tuple[int, bytes]]:
    return [(at, octets[at : at + UNIT]) for at in range(0, len(octets), UNIT)]


def row(octets: bytes) -> np.ndarray:
    return np.frombuffer(octets, np.uint8).reshape(1, -1)


def digest(octets: bytes, block: int, name: str) -> np.ndarray:
    octets = octets[block * BLOCK : (block + 1) * BLOCK]
    found = {"sha256": hashlib.sha256(octets).digest(), "crc32": zlib.crc32(octets).to_bytes(4, "little")}
    return np.frombuffer(found[name], np.uint8)


@given(
    st.binary(min_size=1, max_size=900),
    st.randoms(use_true_random=False),
    st.floats(0, 0.9),
    st.integers(1, 5),
    st.sampled_from(sorted(DIGESTS)),
)
def test_files_rounds_of_missing_ranges_complete_the_file(
    octets: bytes, rng: random.Random, loss: float, most: int, name: str
) -> None:
    manifest = Manifest((FileEntry(b"a", len(octets), 0o600, 0, ((0, len(octets)),)),), (), BLOCK, UNIT, name)
    kept = BlockStore()
    assembly = FileAssembly(manifest, kept, most)
    right: list[int] = []
    for number in range(400):
        missing = assembly.missing()
        if not missing:
            break
        sent = [one for one in units(octets) if any(a < one[0] + UNIT and one[0] < b for a, b in missing)]
        blocks = {place // BLOCK for place, _ in sent}
        rng.shuffle(sent)
        for place, part in sent:
            if rng.random() >= loss:
                damaged = bytes(len(part)) if number == 0 and rng.random() < 0.05 else part
                right += assembly.add(place, row(damaged))
        for block in blocks:
            if rng.random() >= loss:
                right += assembly.add_digests(block, digest(octets, block, name))
    assert assembly.is_complete
    assert sorted(right) == list(range(manifest.blocks))
    assert b"".join(kept.blocks[block] for block in sorted(kept.blocks)) == octets
    assert assembly.right_octets == assembly.whole_octets == len(octets)


def test_files_unsuitable_packets_are_counted() -> None:
    manifest = Manifest((FileEntry(b"a", 95, 0o600, 0, ((0, 95),)),), (), BLOCK, UNIT)
    assembly = FileAssembly(manifest, BlockStore(), 4)
    for place, size in ((5, UNIT), (0, UNIT + 1), (90, UNIT), (100, UNIT), (0, 5), (1 << 50, UNIT), (80, 5)):
        assembly.add(place, row(bytes(size)))
    assembly.add_digests(0, np.zeros(31, np.uint8))
    assembly.add_digests(2, np.zeros(32, np.uint8))
    assembly.add_digests(0, np.zeros(96, np.uint8))
    assert assembly.rejects == 10
    assert assembly.missing() == [(0, 95)]


# On the disk


def offering(folder: Path, unit: int = UNIT, block: int = BLOCK) -> FileOffering:
    return scan([], [folder], unit=unit, block_octets=block, most_entries=1000)


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def receive(found: FileOffering, into: Path, *, only: int | None = None, replace: bool = False) -> bool:
    """Write an offering as a receiver does, or `only` its first blocks; return whether all files are in place."""
    manifest, reader = found.manifest, FileReader(found)
    store = FileStore(into, manifest, manifest.encode(), replace=replace)
    try:
        for block in range(manifest.blocks if only is None else only):
            octets = np.empty(manifest.span(block)[1] - manifest.span(block)[0], np.uint8)
            reader.read(manifest.span(block)[0], octets)
            store.write(block, manifest.span(block)[0], octets)
        if only is not None:
            return False
        store.make_folders()
        for file in range(len(manifest.files)):
            store.finish(file)
        store.end()
        return True
    finally:
        reader.close()
        store.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h", "\N{SNOWMAN}", "-x", "sp ace"]),
        st.binary(max_size=230),
        min_size=1,
    )
)
def test_files_reach_their_final_names(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]) -> None:
    home = tmp_path_factory.mktemp("tree")
    for name, octets in tree.items():
        path = home / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)
        path.chmod(0o640)
    assert receive(offering(home / "src"), home / "into")
    assert contents(home / "into" / "src") == contents(home / "src")
    assert os.listdir(home / "into") == ["src"]


def test_folders_without_files_and_sparse_files_and_links(tmp_path: Path) -> None:
    src = tmp_path / "src"
    (src / "empty" / "inner").mkdir(parents=True)
    with (src / "sparse").open("wb") as file:
        file.seek(5 << 20)
        file.write(b"in the middle")
        file.truncate(9 << 20)
    (src / "link").symlink_to("/etc/passwd")
    os.mkfifo(src / "pipe")
    found = offering(src, 1000, 100_000)
    assert [path.name for path in found.skipped] == ["link", "pipe"]
    assert receive(found, tmp_path / "into")
    made = tmp_path / "into" / "src"
    assert (made / "empty" / "inner").is_dir()
    assert (made / "sparse").read_bytes() == (src / "sparse").read_bytes()
    if (src / "sparse").stat().st_blocks * 512 < 1 << 20:  # if the file system supports sparse files
        assert found.manifest.octets < 1 << 20
        assert (made / "sparse").stat().st_blocks * 512 < 1 << 20
    assert not os.path.lexists(made / "link")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_bytes(b"x" * 100)
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "src").symlink_to(outside)
    with pytest.raises(ProcessError, match="link"):
        receive(offering(tmp_path / "src"), tmp_path / "into")
    assert not list(outside.iterdir())


def test_files_existing_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_bytes(b"new")
    (tmp_path / "into" / "src").mkdir(parents=True)
    there = tmp_path / "into" / "src" / "a"
    there.write_bytes(b"old")
    with pytest.raises(ProcessError, match="already src/a"):
        receive(offering(tmp_path / "src"), tmp_path / "into")
    assert there.read_bytes() == b"old"
    assert os.listdir(tmp_path / "into") == ["src"]
    assert receive(offering(tmp_path / "src"), tmp_path / "into", replace=True)
    assert there.read_bytes() == b"new"


def test_files_partial_transfer_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_bytes(bytes(range(200)))
    (tmp_path / "src" / "b").write_bytes(bytes(range(100)))
    found = offering(tmp_path / "src")
    manifest, into = found.manifest, tmp_path / "into"
    receive(found, into, only=4)
    store = FileStore(into, manifest, manifest.encode(), replace=False)
    assert store.kept_blocks() == bytes((1, 1, 1, 1, 0, 0))
    octets = np.empty(BLOCK, np.uint8)
    assert store.read(0, octets)
    assert octets.tobytes() == bytes(range(50))
    assert not store.read(5 * BLOCK, octets)
    with pytest.raises(ProcessError, match="another process"):
        FileStore(into, manifest, manifest.encode(), replace=False)
    store.close()
    assert (into / partial_name(hashlib.sha256(manifest.encode()).digest())).is_dir()


def test_files_full_disk_is_reported_before_writing(tmp_path: Path) -> None:
    entry = FileEntry(b"a", 1 << 50, 0o600, 0, ((0, 1 << 50),))
    with pytest.raises(ProcessError, match="has room for"):
        FileStore(tmp_path / "into", Manifest((entry,), (), 1 << 28, 1 << 14), b"", replace=False)


# At the source


def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "a"
    path.write_bytes(bytes(100))
    found = offering(tmp_path / "src")
    path.write_bytes(bytes(99))
    octets = np.empty(BLOCK, np.uint8)
    with pytest.raises(ProcessError, match="changed"):
        FileReader(found).read(0, octets)


@pytest.mark.parametrize(("files", "folders", "said"), [(["d"], [], "no file"), ([], ["a"], "no folder"),
    (["a", "e/a"], [], "twice"), ([], [], "nothing"), ([], ["d"], "more than file_entries")])  # fmt: skip
def test_file_transfer_names_unsendable_files(tmp_path: Path, files: list[str], folders: list[str], said: str) -> None:
    for name in ("d", "e"):
        (tmp_path / name).mkdir()
    for number in range(12):
        (tmp_path / "d" / str(number)).touch()
    (tmp_path / "a").touch()
    (tmp_path / "e" / "a").touch()
    with pytest.raises(UsageError, match=said):
        scan([tmp_path / one for one in files], [tmp_path / one for one in folders],
             unit=UNIT, block_octets=BLOCK, most_entries=10)  # fmt: skip


def test_census_knows_missing_files_of_each_node() -> None:
    census = Census(b"ABCDEF", most=2, patience=100)
    assert census.is_settled(1)
    census.take(TransferAnswer(b"ABCDEF", "a", 1, TransferState.LACKS, False, 20, ((0, 10), (50, 60))), 0)
    census.take(TransferAnswer(b"ABCDEF", "b", 1, TransferState.BUSY), 0)
    census.take(TransferAnswer(b"ABCDEF", "c", 1, TransferState.DONE), 0)  # one node too many
    census.take(TransferAnswer(b"others", "a", 1, TransferState.DONE), 0)
    assert (census.rejects, census.known, census.done) == (2, 2, 0)
    assert not census.is_settled(1)
    assert census.is_busy(99)
    assert not census.is_busy(100)
    census.take(TransferAnswer(b"ABCDEF", "b", 2, TransferState.LACKS, True, 15, ((5, 20),)), 1)
    assert census.missing(1) == (True, [(0, 20), (50, 60)])
    assert census.missing(2) == (True, [(5, 20)])
    census.take(TransferAnswer(b"ABCDEF", "b", 3, TransferState.DONE), 2)
    assert not census.is_settled(2)  # node a has not answered since
    assert census.account() == {"a": {"state": "lacks", "missing": 20}, "b": {"state": "done", "missing": 0}}
