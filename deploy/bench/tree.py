"""Topology files that benchmarks write."""

from __future__ import annotations

from pathlib import Path

from deploy.bench.place import BenchNetwork
from pgm.units import format_rate

_RATE = 125_000_000  # octets a second; benchmarks set the actual rate when they open a source
_RECEIVERS_OF_SUBNET = 50
_SUBNETS_OF_REGION = 10
MOST_SIMULATED = 100_000  # receivers; relays of more regions would exceed the source's network

_HEAD = """\
version = 1
name = "bench"
profile = "lan"

[streams.s]
data_port = 7500
rate = "{rate}"
window = "{window}"
"""
_BACK = """
[streams.t]
data_port = 7501
rate = "{rate}"
window = "{window}"
"""
_SEGMENT = """
[segments.{name}]
group = "{group}"
port = {port}
interface = "{network}"
"""
_SOURCE = """
[nodes.{name}]
role = "source"
segment = "{segment}"
address = "{address}"
streams = ["{stream}"]
"""
_RELAY = """
[nodes.{name}]
role = "{role}"
upstream = {{ segment = "{up}", address = "{up_address}" }}
downstream = [{{ segment = "{down}", address = "{down_address}" }}]
parents = ["{parent}"]
{more}"""
_ON_LAN = """
[nodes.repairer]
role = "repairer"
segment = "{segment}"
address = "{address}"
parents = ["{parent}"]
"""
_RECEIVER = """
[nodes.{name}]
role = "receiver"
segment = "{segment}"
streams = ["{stream}"]
parents = ["{parent}"]
{more}"""


def _segments(place: BenchNetwork, count: int) -> str:
    port = place.port
    return "".join(
        _SEGMENT.format(name=f"segment-{number}", group=place.group(number), port=port, network=place.network(number))
        for number in range(count)
    )


def chain(folder: Path, place: BenchNetwork, role: str, buffer: int, cache: str = "") -> Path:
    """Write a source, an optional relay and a receiver in a row, and return the file.

    `role` is the relay's role; an empty role means no relay. The cache file of a repairer lies in the folder `cache`, if
    there is one. The row needs two hosts, or three with a relay.
    """
    last = place.hosts - 2
    parent = "relay" if role else "source"
    text = _HEAD.format(rate=format_rate(_RATE), window="1s") + _segments(place, place.hosts - 1)
    text += _source(segment="segment-0", address=place.seat(0, 0).address)
    if role:
        # The repairer fills its memory before the measurement, as the source does.
        warm = 'warm_bytes = "256MiB", ' if role == "repairer" else ""
        cached = f'cache = {{ directory = "{cache}" }}\n' if role == "repairer" else ""
        text += _relay(
            place,
            "relay",
            role,
            f'{cached}parameters = {{ {warm}so_rcvbuf = "{buffer}B", so_sndbuf = "{buffer}B", txw_max_rte = "100Gbit/s" }}\n',
        )
    address = f'address = "{place.seat(place.hosts - 1, last).address}"\n'
    text += _receiver(name="receiver", segment=f"segment-{last}", parent=parent, more=address)
    return _write(folder / f"chain-{role or 'direct'}{'-saved' if cache else ''}.toml", text)


def both_ways(folder: Path, place: BenchNetwork) -> Path:
    """Write a source and a receiver on each of two hosts, each source with a stream and a group, and return the file."""
    rate, window = format_rate(_RATE), "1s"
    text = _HEAD.format(rate=rate, window=window) + _BACK.format(rate=rate, window=window)
    near, far = place.seat(0, 0).address, place.seat(1, 0).address
    for segment, (stream, back, sender, receiver) in enumerate((("s", "", near, far), ("t", "-back", far, near))):
        name = f"segment-{segment}"
        text += _SEGMENT.format(name=name, group=place.group(segment), port=place.port, network=place.network(0))
        text += _source(f"source{back}", stream, segment=name, address=sender)
        more = f'address = "{receiver}"\n'
        text += _receiver(name=f"receiver{back}", stream=stream, segment=name, parent=f"source{back}", more=more)
    return _write(folder / "both-ways.toml", text)


def _source(name: str = "source", stream: str = "s", *, segment: str, address: str) -> str:
    return _SOURCE.format(name=name, stream=stream, segment=segment, address=address)


def _receiver(stream: str = "s", **fields: str) -> str:
    return _RECEIVER.format(stream=stream, **fields)


def one_of_each(folder: Path, place: BenchNetwork) -> Path:
    """Write a source, an aggregator, a repairer and a receiver on four loopback hosts, and return the file."""
    text = _HEAD.format(rate=format_rate(_RATE), window="1s") + _segments(place, 2)
    text += _source(segment="segment-0", address=place.seat(0, 0).address)
    text += _relay(place, "aggregator", "aggregator", 'repairers = ["repairer"]\n')
    text += _ON_LAN.format(segment="segment-1", address=place.seat(2, 1).address, parent="aggregator")
    address = f'address = "{place.seat(3, 1).address}"\n'
    text += _receiver(name="receiver", segment="segment-1", parent="aggregator", more=address)
    return _write(folder / "one-of-each.toml", text)


def _relay(place: BenchNetwork, name: str, role: str, more: str) -> str:
    """Return the relay from the first segment to the second."""
    up, down = place.seat(1, 0).address, place.seat(1, 1).address
    names = {"name": name, "role": role, "up": "segment-0", "down": "segment-1", "parent": "source"}
    return _RELAY.format(**names, up_address=up, down_address=down, more=more)


def three_tiers(folder: Path, receivers: int) -> Path:
    """Write a source, regions and subnets of up to fifty receivers, behind relays, for the simulator; return it."""
    subnets = -(-receivers // _RECEIVERS_OF_SUBNET)
    regions = -(-subnets // _SUBNETS_OF_REGION)
    parts = [_HEAD.format(rate="80Mbit/s", window="30s")]
    parts.append(_SEGMENT.format(name="core", group="239.192.0.1", port=3056, network="10.0.0.0/24"))
    parts.append(_source(segment="core", address="10.0.0.10"))
    for region in range(regions):
        parts.append(
            _tier(
                f"region-{region}", f"239.193.0.{region}", f"10.1.{region}", "core", f"10.0.0.{20 + region}", "source"
            )
        )
    for subnet in range(subnets):
        (region, place), (high, low) = divmod(subnet, _SUBNETS_OF_REGION), divmod(subnet, 256)
        net = f"10.{2 + high}.{low}"
        above = f"region-{region}"
        name = f"subnet-{subnet}"
        parts.append(_tier(name, f"239.194.{high}.{low}", net, above, f"10.1.{region}.{20 + place}", f"relay-{above}"))
        count = min(_RECEIVERS_OF_SUBNET, receivers - subnet * _RECEIVERS_OF_SUBNET)
        more = f'count = {count}\naddresses = "{net}.100-{net}.{99 + count}"\n'
        receiver = _receiver(name=f'"receiver-{subnet}-*"', segment=name, parent=f"relay-{name}", more=more)
        parts.append(receiver)
    return _write(folder / f"three-tiers-{receivers}.toml", "".join(parts))


def _tier(name: str, group: str, net: str, up: str, up_address: str, parent: str) -> str:
    """Return a segment and the repairer that relays to it."""
    segment = _SEGMENT.format(name=name, group=group, port=3056, network=f"{net}.0/24")
    return segment + _RELAY.format(
        name=f"relay-{name}",
        role="repairer",
        up=up,
        up_address=up_address,
        down=name,
        down_address=f"{net}.1",
        parent=parent,
        more="",
    )


def _write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file
