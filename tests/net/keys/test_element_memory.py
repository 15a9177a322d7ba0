"""Memory of running elements: a sealed stream passes through without its secret and without a message in the clear."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import pgm.blocking
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.trust.key_records import verify_records_untrusted
from pgm.trust.private_keys import PrivateFile
from tests.net.keys.test_sealed_tree import KEYS, sealed_text
from tests.net.support.places import Place
from tests.net.support.processes import processes
from tests.unit.trust.test_private_keys import spellings

ELEMENTS = ("relay", "repairer")
MARKER = os.urandom(16).hex().encode()


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield the readable memory of a process that may change."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is None or "[vvar" in line:
                continue
            first, end = int(found[1], 16), int(found[2], 16)
            try:
                yield os.pread(memory.fileno(), end - first, first)
            except OSError:
                continue  # unmapped meanwhile


def test_elements_hold_neither_secret_nor_plaintext(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    tree = f"t{place.number}"
    write_private_file(place_of(tree, "source"), PrivateFile(tree, "source", KEYS["source"]))
    with processes(sealed_text(place, "desk-1"), tree) as nodes:
        started = nodes.start_all(ELEMENTS)
        assert "stream s: signed and sealed for desk-1" in started[0].log
        with pgm.blocking.open_source(nodes.file, node="source") as source:
            source.send_batch([MARKER * 40] * 100)
            core = source.internals[0]
            sealer = core.setup.sealer
            assert sealer is not None
            records = verify_records_untrusted(next(sealer.records()), KEYS["source"].public)
            assert records is not None
            secret = records.secret_for_untrusted(KEYS["desk-1"])
            assert secret is not None
            for element in ELEMENTS:
                nodes.until(element, lambda snapshot: any(row["lead"] == 99 for row in snapshot["sessions"]))
            run = next(core.window.parts(50, 51))
            ciphertext = run.alone()
            assert MARKER not in ciphertext
            for element, process in zip(ELEMENTS, started, strict=True):
                is_there = False
                for octets in memory_of(process.process.pid):
                    is_there = is_there or ciphertext in octets
                    assert secret not in octets
                    assert MARKER not in octets
                assert is_there, f"{element} does not hold the stream"


def test_nodes_with_keys_tell_no_octet_of_them(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, logs, status and telemetry of a reader and of a source that run."""
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    tree, telemetry = f"t{place.number}", tmp_path / "telemetry"
    for name in ("source", "desk-1"):
        write_private_file(place_of(tree, name), PrivateFile(tree, name, KEYS[name]))
    with processes(sealed_text(place, "desk-1"), tree) as nodes:
        nodes.start_all(ELEMENTS)
        desk = nodes.start("desk-1", "--telemetry", str(telemetry))
        desk.line_with("ready:")
        source = nodes.start("source", "--telemetry", str(telemetry), stdin=subprocess.PIPE)
        assert source.process.stdin is not None
        source.process.stdin.write(b"a message\n" * 100)
        source.process.stdin.flush()
        snapshot = nodes.until("desk-1", lambda found: found["counters"].get("delivered_packets", 0) > 0)
        told = [json.dumps([snapshot, nodes.status("source")]), desk.log, source.log]
        source.process.stdin.close()
        source.wait()
        desk.process.terminate()
        desk.wait()
        told += [desk.log, source.log, json.dumps([desk.printed, source.printed])]
    assert list(telemetry.rglob("*.parquet"))
    octets = b"".join(
        [*(text.encode() for text in told), *(path.read_bytes() for path in telemetry.rglob("*.parquet"))]
    )
    assert b"delivered" in octets
    for name in ("source", "desk-1"):
        secret = KEYS[name].secret_octets()
        raw = [secret[:32], secret[32:]]
        assert [one for one in [*raw, *map(str.encode, spellings(secret))] if one in octets] == []
