"""`pgm archive`: missing data are reported, and JSON keeps every octet of a message."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import attrs
import pytest

from pgm.archive.service.collection import Archives
from pgm.archive.session import OPENED
from pgm.archive.store.writer import ArchiveWriter
from pgm.trust.private_keys import PrivateFile
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.unit.archive.makers import TSI_TEXT, append, log_to, loss, messages, payload, small
from tests.unit.archive.signed import MESSAGES, mixed, proofs_of, record, sealed, sealer_for, tree_text
from tests.unit.trust.keys import private_keys

ROWS = 200
SIZE = 16


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Build an archive with a loss at its end. Messages from number 128 on are not text."""
    directory = tmp_path / "archive"
    writer = ArchiveWriter(directory, small(), log_to([]))
    append(writer, [messages(0, ROWS, SIZE), loss(ROWS, 10)])
    writer.sync()
    writer.close()
    return directory


@pytest.mark.parametrize("action", ["ls", "verify", "cat"])
def test_archive_directory_without_archive_is_an_error(tmp_path: Path, action: str) -> None:
    invoked("archive", action, tmp_path).complains(1, f"{tmp_path} holds no archive")
    told = invoked("archive", action, tmp_path, "--json")
    assert (told.code, told.json["error"]["code"]) == (1, "PGM-ARCHIVE")


@pytest.mark.parametrize("action", ["ls", "verify", "cat"])
def test_archive_without_pyarrow_names_the_package_to_install(
    archive: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    for name in [one for one in sys.modules if one.startswith("pgm.archive.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
    invoked("archive", action, archive).complains(2, "pip install 'pgm-repair-network[arrow]'")


def test_archive_cat_binary_message_keeps_all_octets_in_json(archive: Path) -> None:
    rows = [json.loads(line) for line in invoked("archive", "cat", archive, "--json").out.splitlines()]
    assert len(rows) == ROWS + 1
    for sqn, row in enumerate(rows[:ROWS]):
        assert row["sqn"] == sqn
        is_text = "value_base64" not in row
        octets = row["value"].encode() if is_text else base64.b64decode(row["value_base64"])
        assert (octets, is_text) == (payload(sqn, SIZE), sqn < 128)
        documented("archive cat", row, optional=("value_base64",))
    assert (rows[-1]["value"], rows[-1]["count"], "value_base64" in rows[-1]) == (None, 10, False)


def test_archive_options_of_cat_are_refused_by_other_verbs(archive: Path) -> None:
    """`--tsi` and `--node` select rows of `cat`; with `verify` they would suggest that one session was verified."""
    for action in ("ls", "verify"):
        for option, value in (("--tsi", TSI_TEXT), ("--node", "x"), ("--first", "0"), ("--end", "1")):
            invoked("archive", action, archive, option, value).complains(2, option, action)


def test_archive_cat_empty_range_is_reported(archive: Path) -> None:
    invoked("archive", "cat", archive, "--first", "10", "--end", "10").complains(2, "--first 10 --end 10")
    beyond = invoked("archive", "cat", archive, "--first", "5000", "--json")
    assert (beyond.code, beyond.out) == (0, "")
    assert f"session {TSI_TEXT} has no rows in this range; the archive holds the sqns 0 to {ROWS + 9}" in beyond.err


def test_archive_ls_of_only_damaged_files_is_not_called_empty(archive: Path) -> None:
    (segment,) = archive.glob("*.arrows")
    segment.write_bytes(b"\0" * segment.stat().st_size)
    invoked("archive", "cat", archive).complains(1, segment.name)


@pytest.mark.parametrize("place", [0, 1])
def test_archive_verify_ignores_segments_dropped_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The oldest segment may go while others are verified; a segment missing between two others is a fault."""
    directory = tmp_path / "archive"
    writer = ArchiveWriter(directory, small(record_segment_bytes=64 << 10), log_to([]))
    for first in range(0, 400, 100):
        append(writer, [messages(first, 100, 1000)])
        writer.sync()
    writer.close()
    files = sorted(directory.glob("*.arrows"))
    assert len(files) == 4

    def opened(where: Path) -> Archives:
        archives = Archives(where)
        files[place].unlink()
        return archives

    monkeypatch.setattr("deploy.archive.inspect._open_nonempty", opened)
    done = invoked("archive", "verify", directory, "--json")
    assert done.json["batches"] == 3
    gone = [f"{files[1]} is gone, with the sqns 100 to 199"] if place else []
    assert (done.code, done.json["problems"]) == (len(gone), gone)


def test_archive_signatures_need_keys_and_a_signed_stream(archive: Path, tmp_path: Path) -> None:
    invoked("archive", "verify", archive, "--signatures").complains(1, "has no copy of public keys", "--topology")
    invoked("archive", "verify", archive, "--topology", "tree.toml").complains(2, "--topology", "--signatures")
    invoked("archive", "cat", archive, "--signatures").complains(2, "--signatures", "verify")
    tree = tmp_path / "tree.toml"
    assert invoked("demo", "--write", tree, "--subnets", "1", "--receivers", "1").code == 0
    unsigned = invoked("archive", "verify", archive, "--signatures", "--topology", tree)
    unsigned.complains(1, str(tree), "has no signed stream", "signed = true")
    tree.write_text(tree.read_text().replace("data_port", "signed = true\ndata_port", 1))
    found = invoked("archive", "verify", archive, "--signatures", "--topology", tree, "--json")
    assert (found.code, found.json["signatures"]["sessions"]) == (1, [])
    assert "no session of a signed stream" in found.json["problems"][0]


def test_archive_of_decrypted_rows_is_proved_by_keys_of_a_reader(tmp_path: Path) -> None:
    reader = private_keys(2)
    sealer = sealer_for(reader)
    proofs = proofs_of(sealed(mixed(), sealer), sealer=sealer)
    session = attrs.evolve(MESSAGES, kind=OPENED)
    record(tmp_path / "archive", mixed(), proofs, session=session, records=list(sealer.records()))
    tree, key_file = tmp_path / "tree.toml", tmp_path / "reader.key"
    tree.write_text(tree_text(is_sealed=True))
    key_file.write_text(PrivateFile("floor", "desk", reader).text())
    key_file.chmod(0o600)
    asked = ("archive", "verify", tmp_path / "archive", "--signatures", "--topology", tree)
    without = invoked(*asked)
    assert (without.code, "161 rows unproved" in without.out, "--keys" in without.err) == (1, True, True)
    proved = invoked(*asked, "--keys", key_file, "--json")
    assert (proved.code, proved.json["signatures"]["sessions"][0]["proved"]) == (0, 161)
    key_file.chmod(0o640)
    invoked(*asked, "--keys", key_file).complains(2, str(key_file), "is open to other users", "chmod 600")
