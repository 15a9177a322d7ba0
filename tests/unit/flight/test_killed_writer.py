"""Ring file of a process that is killed while it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pgm.flight.contents import read_ring
from pgm.flight.record import NO_PEER, RECORD_OCTETS, Body, FlightKind
from pgm.flight.ring import HEAD_OCTETS, RingFile

_RECORDS = 2000
_WRITER = f"""
import sys
from pathlib import Path
from tests.unit.flight.test_killed_writer import body
from pgm.flight.ring import RingFile
ring = RingFile(Path(sys.argv[1]), {HEAD_OCTETS + _RECORDS * RECORD_OCTETS}, {{"node": "n"}}).ring
number = 0
while True:
    ring.append([body(number)])
    number += 1
    if number == {3 * _RECORDS}:
        print("full", flush=True)
"""


def body(number: int) -> Body:
    return (number, number, number, 1, 0, 0, FlightKind.GAP, 0, 0, NO_PEER, number & 0xFFFF)


def test_ring_of_a_killed_process_has_all_records_but_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "n.flight"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"full\n"
        writer.kill()
    records = read_ring(path).records
    numbers = records["number"].tolist()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert _RECORDS - 1 <= len(numbers) <= _RECORDS
    assert (records["number"] == records["first"] + 1).all()
    assert (records["time_ns"] == records["value"]).all()
    file = RingFile(path, HEAD_OCTETS + _RECORDS * RECORD_OCTETS, {"node": "n"})
    file.ring.append([body(7)])
    file.close()
    after = read_ring(path).records
    assert after["first"][-1] == 7
    assert after["number"][-1] == numbers[-1] + 1
