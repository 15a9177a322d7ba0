"""Topology of the soak: two halls below a core. The nodes of one hall run to the end, and most of the other restart."""

from __future__ import annotations

from pathlib import Path

from tests.net.support.places import Place

SIZE = 200  # octets of a message
RECORDERS = ("recorder-1", "recorder-2")
STEADY_RECEIVERS = ("calm-1", "calm-2", "wild-2")
ELEMENTS = ("aggregator-1", "aggregator-2", "repairer-1", "repairer-2")
RESTARTED_NODES = ("aggregator-2", "repairer-2", "wild-1", "recorder-2")
_WINDOW = "60s"  # longer than the start of a relay on a busy machine
_ARCHIVE_S = 1200  # an archive and its index are full, and the oldest segment goes, before memory is judged
_ROW_OCTETS = 64  # of an archive, besides the message; an estimate

_HEAD = """\
version = 1
name = "soak-{number}"
profile = "lossy"
rtt = "50ms"
repair_budget = "{window}"

[parameters]
rx_wake_ivl = "20ms"  # many processes share a few cores
rxw_warm_bytes = "0B"
fin_quiet_ivl = "2s"

[streams.s]
data_port = 7500
rate = "20Mbit/s"
window = "{window}"

{core}
loss = {{ loss = "{loss}" }}

[nodes.source]
role = "source"
segment = "core"
address = "{source}"
streams = ["s"]
"""

_HALL = """
{segment}
loss = {{ loss = "{loss}" }}

[nodes.aggregator-{n}]
role = "aggregator"
upstream = {{ segment = "core", address = "{up}" }}
downstream = [{{ segment = "hall-{n}", address = "{down}" }}]
repairers = ["repairer-{n}"]
parents = ["source"]

[nodes.repairer-{n}]
role = "repairer"
segment = "hall-{n}"
address = "{repairer}"
parents = ["aggregator-{n}"]
cache = {{ bytes = "32MiB", directory = "{folder}" }}
record = {{ directory = "{folder}/archives/repairer-{n}", {archive} }}

[nodes.recorder-{n}]
role = "receiver"
segment = "hall-{n}"
address = "{recorder}"
parents = ["aggregator-{n}", "repairer-{n}"]
record = {{ directory = "{folder}/archives/recorder-{n}", {archive} }}
"""

_RECEIVER = """
[nodes.{name}]
role = "receiver"
segment = "hall-{n}"
address = "{address}"
parents = ["aggregator-{n}", "repairer-{n}"]
"""


def soak_topology(place: Place, folder: Path, loss: str, messages_s: float) -> str:
    """Return the topology file. Archives and cache files lie in `folder`; every node loses `loss` of what it reads."""
    core = place.segment("core", 0)
    held = max(1 << 20, round(messages_s * _ARCHIVE_S * (SIZE + _ROW_OCTETS)))
    archive = f'bytes = "{held}B", segment_bytes = "{max(1 << 16, held // 16)}B"'
    parts = [_HEAD.format(number=place.number, window=_WINDOW, core=core, loss=loss, source=place.address(1))]
    for hall, receivers in ((1, ("calm-1", "calm-2")), (2, ("wild-1", "wild-2"))):
        low = 10 * hall
        parts.append(
            _HALL.format(
                n=hall, segment=place.segment(f"hall-{hall}", hall), loss=loss, folder=folder, archive=archive,
                up=place.address(1 + hall), down=place.address(low), repairer=place.address(low + 1),
                recorder=place.address(low + 2),
            )
        )  # fmt: skip
        parts += [
            _RECEIVER.format(name=name, n=hall, address=place.address(low + 3 + at))
            for at, name in enumerate(receivers)
        ]
    return "".join(parts)
