"""SIGKILL of a repairer in mid-stream: how soon its successor serves, and how much it requests.

python -m tests.net.campaigns.repairer_kills --kills 5 --rate 200Mbit/s

The receiver loses nothing, so that all NAKs at the source are the repairer's. A probe sends NAKs for a packet that the killed
process held, until the next process has repaired it.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from pgm.units import MIB
from pgm.wire.control_packets import Nak, encode
from pgm.wire.formats import PacketType
from pgm.wire.sequence_numbers import wrap
from tests.net.support.places import Place
from tests.net.support.processes import Stream, count, streaming

_MEMORY = Path("/dev/shm")
_PROBE_S = 0.01
_AGE_SQNS = 500  # how much older than its newest packet the probed one is
_TOPOLOGY = """\
version = 1
name = "t{number}"
parameters = {{ fin_quiet_ivl = "500ms" }}

[streams.s]
data_port = 7500
rate = "{rate}"
window = "10s"

{segment}

[nodes.source]
role = "source"
segment = "lan"
address = "{source}"
streams = ["s"]

[nodes.repairer]
role = "repairer"
segment = "lan"
address = "{repairer}"
parents = ["source"]
cache = {{ bytes = "{octets}B", directory = "{folder}" }}

[nodes.desk]
role = "receiver"
segment = "lan"
address = "{desk}"
parents = ["repairer", "source"]
"""


@attrs.frozen
class KillResult:
    """One kill. Times in seconds from the start of the next process; the other values in packets."""

    held: int  # by the killed process, when it was last asked
    octets: int
    ready_s: float
    served_s: float
    restored: int
    refused: int  # records
    meanwhile: int  # sent between the last look at the killed process and the first look at the next one
    missing: int
    requested: int  # repeats included
    whole_s: float  # until all missing packets were repaired

    @property
    def text(self) -> str:
        """Return the result as a line."""
        return (
            f"held {self.held:,} packets ({self.octets / MIB:.0f} MiB), took over {self.restored:,};"
            f" ready after {self.ready_s:.2f} s, served after {self.served_s:.2f} s, whole after {self.whole_s:.2f} s;"
            f" sent meanwhile {self.meanwhile:,}, missing {self.missing:,}, requested {self.requested:,}"
        )


@contextmanager
def _probe(place: Place) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((place.address(60), place.port))
        yield sock


def _is_whole(snapshot: dict[str, Any]) -> bool:
    return count(snapshot, "missing_sqns") > 0 and all(row["missing_sqns"] == 0 for row in snapshot["sessions"])


def _kill(stream: Stream, place: Place, probe: socket.socket) -> KillResult:
    tree, source = stream.tree, stream.source
    assert source is not None
    before = tree.status("repairer")
    [session] = before["sessions"]
    nak = Nak(
        tsi=source.tsi,
        data_port=7500,
        kind=PacketType.NAK,
        sqn=wrap(session["lead"] - _AGE_SQNS),
        source_nla=place.address(1),
        group_nla=place.group(),
    )
    tree.running["repairer"].kill()
    tree.running["repairer"].wait()
    began_s = time.monotonic()
    process = tree.start("repairer")
    ready_s = process.line_with("ready:")
    while True:
        probe.sendto(encode(nak), (place.address(3), place.port))
        after = tree.until("repairer", lambda _: True)
        if count(after, "rdata_packets"):
            break
        time.sleep(_PROBE_S)
    served_s = time.monotonic()
    [session_after] = after["sessions"]
    whole = tree.until("repairer", _is_whole)
    whole_s = time.monotonic()
    return KillResult(
        held=session["lead"] + 1 - session["trail"],
        octets=session["held_octets"],
        ready_s=ready_s - began_s,
        served_s=served_s - began_s,
        restored=count(whole, "cache_packets_restored"),
        refused=count(whole, "cache_records_refused"),
        meanwhile=session_after["lead"] - session["lead"],
        missing=count(whole, "missing_sqns"),
        requested=count(whole, "nak_sqns"),
        whole_s=whole_s - began_s,
    )


def kill_repairers(kills: int, rate: str, octets: int, fill: int) -> Iterator[KillResult]:
    """Kill the repairer of a stream some times, each after `fill` packets more. Yield the results."""
    place = Place.new()
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder, _probe(place) as probe:
        seats = {"source": place.address(1), "repairer": place.address(3), "desk": place.address(100)}
        text = _TOPOLOGY.format(
            number=place.number, rate=rate, segment=place.segment("lan"), octets=octets, folder=folder, **seats
        )
        with streaming(text, f"t{place.number}", ["desk"], ["repairer"]) as stream:
            for _ in range(kills):
                stream.until_delivered(fill)
                yield _kill(stream, place, probe)
            stream.end_whole()


def main() -> None:
    """Run the campaign and print a line for each kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rate", default="200Mbit/s", help="rate of the stream")
    parser.add_argument("--cache", type=int, default=256, help="MiB of the cache")
    parser.add_argument("--fill", type=int, default=50_000, help="packets delivered before each kill")
    arguments = parser.parse_args()
    for result in kill_repairers(arguments.kills, arguments.rate, arguments.cache * MIB, arguments.fill):
        print(result.text, flush=True)


if __name__ == "__main__":
    main()
