"""The file of a durable receiver: a crash at any octet of a write leaves the positions of this write, or of the one before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import ProcessError, UsageError
from pgm.net.durable.memory import Memory
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import MOST_SESSIONS, PositionFile, SavedSession, file_of
from tests.reference import TSI

POSITIONS = st.builds(
    Position,
    st.binary(min_size=8, max_size=8),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 16),
    st.booleans(),
)
SESSIONS = st.builds(SavedSession, POSITIONS, st.integers(1, 65535), st.integers(-1, 1 << 62), st.booleans())


def contents_of(path: Path) -> tuple[SavedSession, ...]:
    file = PositionFile(path)
    file.close()
    return file.sessions


@given(position=POSITIONS)
def test_text_of_a_position_gives_the_position(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize("text", ["", "1.2.3.4.5.6.7", "1.2.3.4.5.6.70000@1:2.3", "1.2.3.4.5.256.7@1:2.3", "1.2@1:2.3"])
def test_text_of_no_position_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no position"):
        Position.parse(text)


@given(writes=st.lists(st.lists(SESSIONS, max_size=4), max_size=5))
def test_last_write_is_read(tmp_path_factory: pytest.TempPathFactory, writes: list[list[SavedSession]]) -> None:
    path = tmp_path_factory.mktemp("positions") / "desk"
    for sessions in writes:
        file = PositionFile(path)
        file.write(sessions)
        file.close()
    assert contents_of(path) == tuple(writes[-1] if writes else ())


@given(data=st.data(), writes=st.lists(st.lists(SESSIONS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_crash_in_a_write_leaves_one_of_both(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, writes: list[list[SavedSession]]
) -> None:
    path = tmp_path_factory.mktemp("positions") / "desk"
    file = PositionFile(path)
    for sessions in writes[:-1]:
        file.write(sessions)
    before = path.read_bytes()
    file.write(writes[-1])
    file.close()
    after = path.read_bytes()
    before = before.ljust(len(after), b"\0")
    changed = [at for at in range(len(after)) if before[at] != after[at]]
    # The disk has written any part of the changed octets, in any order.
    torn = bytearray(before)
    for at in data.draw(st.sets(st.sampled_from(changed))):
        torn[at] = after[at]
    path.write_bytes(torn)
    found = contents_of(path)
    assert found in (tuple(writes[-2]) if len(writes) > 1 else (), tuple(writes[-1]))
    if bytes(torn) == after:
        assert found == tuple(writes[-1])


def test_write_after_a_torn_one_spares_the_good_slot(tmp_path: Path) -> None:
    path = tmp_path / "desk"
    one, two, three = ([SavedSession(Position(TSI, 1, sqn), 7500, sqn)] for sqn in (1, 2, 3))
    file = PositionFile(path)
    file.write(one)
    file.write(two)
    file.close()
    octets = bytearray(path.read_bytes())
    octets[-1] ^= 1  # in the second slot
    path.write_bytes(octets)
    file = PositionFile(path)
    assert file.sessions == tuple(one)
    file.write(three)
    file.close()
    assert contents_of(path) == tuple(three)
    octets = bytearray(path.read_bytes())
    octets[-1] ^= 1
    path.write_bytes(octets)
    assert contents_of(path) == tuple(one)


def test_damage_to_both_slots_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "desk"
    file = PositionFile(path)
    for sqn in (1, 2):
        file.write([SavedSession(Position(TSI, 1, sqn), 7500, sqn)])
    file.close()
    octets = bytearray(path.read_bytes())
    octets[30] ^= 1
    octets[-1] ^= 1
    path.write_bytes(octets)
    with pytest.raises(ProcessError, match="is damaged"):
        PositionFile(path)


def test_file_belongs_to_one_receiver(tmp_path: Path) -> None:
    first = PositionFile(tmp_path / "desk")
    with pytest.raises(ProcessError, match="another receiver uses"):
        PositionFile(tmp_path / "desk")
    first.close()
    PositionFile(tmp_path / "desk").close()


def test_largest_number_of_sessions_fits(tmp_path: Path) -> None:
    file = PositionFile(tmp_path / "desk")
    sessions = [
        SavedSession(Position(b"\xff" * 6 + number.to_bytes(2, "big"), 1 << 62, 1 << 62, 1 << 20), 65535, 1 << 62)
        for number in range(MOST_SESSIONS + 1)
    ]
    for _ in range(3):
        file.write(sessions)
    file.close()
    assert contents_of(tmp_path / "desk") == tuple(sessions[1:])


def test_name_lies_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert file_of("desk-7") == tmp_path / "pgm" / "durable" / "desk-7"
    assert file_of("./desk-7") == Path("desk-7")
    for wrong in ("", "..", ".x"):
        with pytest.raises(UsageError, match="is no name"):
            file_of(wrong)


def test_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProcessError, match="cannot be kept"):
        PositionFile(tmp_path / "file" / "desk")


def test_finished_sessions_are_forgotten_with_their_successor() -> None:
    done = SavedSession(Position(TSI, 1, 10), 7500, 9, is_closed=True)
    open_ = SavedSession(Position(bytes([*TSI[:7], TSI[7] ^ 1]), 2, 3), 7500, 9)
    memory = Memory([done, open_])
    successor = bytes([*TSI[:7], TSI[7] ^ 2])
    assert memory.replaced_by(successor) == [open_]
    assert memory.sessions == (open_,)
    assert os.fspath(file_of("/tmp/x")) == "/tmp/x"
