"""An nftables rule that drops a share of an interface's input and reports what it dropped.

The kernel passes a train that was sent with segmentation offload to the rule as one packet. A rule then drops whole
trains. The report is exact: a set in the rule keeps the first sqn and the length of every ODATA packet or train that it
dropped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence

import attrs

from tests.net.support.lab import Host

_HEADERS = 20 + 8  # octets of IPv4 and UDP before a PGM packet or train
_MOST_TRAINS = 1 << 20  # that the set can hold
_SHARES = 10_000  # a share is drawn in steps of a hundredth of a percent

# Offsets are in bits from the UDP header: 8 octets, then type at 4 and sqn at 16 of the PGM packet (RFC 8).
_IS_ODATA = "@th,96,8 4"
_IS_RDATA = "@th,96,8 5"
_IS_CONTROL = "@th,96,8 != { 4, 5 }"
_RULES = """
table inet loss {{
  counter odata {{ }}
  counter rdata {{ }}
  counter control {{ }}
  counter lost_odata {{ }}
  counter lost_rdata {{ }}
  counter lost_control {{ }}
  set lost {{ typeof @th,192,32 . meta length; flags dynamic; size {most}; }}
  chain arriving {{
    type filter hook prerouting priority -300;
    iifname {{ {interfaces} }} meta l4proto udp jump hop
  }}
  chain hop {{
    {odata} counter name odata
    {rdata} counter name rdata
    {control} counter name control
    {draw}
  }}
  chain losing {{
    {rdata} counter name lost_rdata drop
    {control} counter name lost_control drop
    counter name lost_odata
    add @lost {{ @th,192,32 . meta length }}
    drop
  }}
}}
"""


@attrs.frozen
class Count:
    """Value of a counter: units of the kernel (packets or trains), and their octets of PGM."""

    units: int
    octets: int

    def packets(self, stride: int) -> int:
        """Return the PGM packets of `stride` octets in all units, including a short one at the end of a stream."""
        return -(-self.octets // stride)


@attrs.frozen
class Losses:
    """Input and drops of a rule, and the dropped runs of ODATA packets in order of sqns."""

    odata: Count
    rdata: Count
    control: Count
    lost_odata: Count
    lost_rdata: Count
    lost_control: Count
    runs: tuple[int, ...]

    @property
    def units(self) -> int:
        """Return the packets and trains of any type in the input."""
        return self.odata.units + self.rdata.units + self.control.units

    @property
    def lost_units(self) -> int:
        """Return the packets and trains that it dropped."""
        return self.lost_odata.units + self.lost_rdata.units + self.lost_control.units


def runs_of(trains: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the lengths of the runs of (first sqn, packets), with neighbours joined."""
    runs: list[int] = []
    end = -1
    for first, packets in sorted(trains):
        if first == end:
            runs[-1] += packets
        else:
            runs.append(packets)
        end = first + packets
    return tuple(runs)


def install(host: Host, interfaces: Sequence[str], share: float) -> None:
    """Drop `share` of the UDP packets that arrive on `interfaces` from now on; 0 only counts.

    Replaces an older rule.
    """
    limit = round(share * _SHARES)
    draw = f"numgen random mod {_SHARES} < {limit} jump losing" if limit else ""
    names = ", ".join(f'"{name}"' for name in interfaces)
    rules = _RULES.format(
        most=_MOST_TRAINS, interfaces=names, odata=_IS_ODATA, rdata=_IS_RDATA, control=_IS_CONTROL, draw=draw
    )
    remove(host)
    subprocess.run(host.wrap(["nft", "-f", "-"]), input=rules, text=True, check=True)


def remove(host: Host) -> None:
    """Remove the rule, if there is one."""
    if "table inet loss" in host.run("nft", "list", "tables"):
        host.run("nft", "delete", "table", "inet", "loss")


def read(host: Host, stride: int) -> Losses:
    """Return the counts of the rule. `stride` is the size of a full packet of the stream."""
    listing = json.loads(host.run("nft", "-j", "list", "table", "inet", "loss"))["nftables"]
    counters = [row["counter"] for row in listing if "counter" in row]
    counts = {row["name"]: Count(row["packets"], row["bytes"] - _HEADERS * row["packets"]) for row in counters}
    elements = next(row["set"].get("elem", []) for row in listing if "set" in row and row["set"]["name"] == "lost")
    pairs = [one["concat"] for one in elements]
    runs = runs_of((sqn, -(-(length - _HEADERS) // stride)) for sqn, length in pairs)
    return Losses(**counts, runs=runs)
