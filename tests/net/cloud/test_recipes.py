"""Example topologies for clouds, on networks that know no IGMP but version 2, and no source filters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.net.cloud.network import CloudNetwork, cloud
from tests.net.support.lab import ROOT, needs_namespaces
from tests.net.support.places import LOSSY

FOLDER = ROOT / "deploy/topologies"


@attrs.frozen
class Recipe:
    """Topology file, its networks, the host of each node, and the multicast group of each host's nodes."""

    file: str
    networks: tuple[CloudNetwork, ...]
    nodes: dict[str, str]
    groups: dict[str, str]


AWS = Recipe(
    "aws-transit-gateway.toml",
    (
        CloudNetwork(
            "10.60",
            {
                "exchange": ("10.60.0.10",),
                "relay": ("10.60.0.11",),
                "zone-a": ("10.60.1.10", "10.60.1.20"),
                "zone-b": ("10.60.2.10", "10.60.2.20"),
            },
            mtu=8500,
        ),
        CloudNetwork("192.168.60", {"office": ("192.168.60.1",), "desk": ("192.168.60.20",)}),
    ),
    {
        "zone-a-repairer": "zone-a",
        "zone-b-repairer": "zone-b",
        "gateway": "relay",
        "office-repairer": "office",
        "zone-a-1": "zone-a",
        "zone-b-1": "zone-b",
        "office-1": "desk",
        "exchange": "exchange",
    },
    {"zone-a": "239.192.60.1", "relay": "239.192.60.1", "desk": "239.192.60.2"},
)
GOOGLE = Recipe(
    "google-cloud-multicast.toml",
    (
        CloudNetwork(
            "10.70",
            {
                "exchange": ("10.70.0.10",),
                "relay": ("10.70.0.11",),
                "zone-b": ("10.70.1.10",),
                "zone-c": ("10.70.2.10",),
                "zone-d": ("10.70.3.20",),
            },
            mtu=1460,
            prefix=32,  # as the guests of the cloud have it
        ),
        CloudNetwork("10.71", {"asia": ("10.71.0.1",), "desk": ("10.71.3.20",)}, mtu=1460, prefix=32),
    ),
    {
        "repairer-b": "zone-b",
        "repairer-c": "zone-c",
        "gateway": "relay",
        "asia-repairer": "asia",
        "europe-1": "zone-d",
        "asia-1": "desk",
        "exchange": "exchange",
    },
    {"zone-d": "239.192.70.1", "relay": "239.192.70.1", "desk": "239.192.70.2"},
)


def _short(text: str) -> str:
    """Return a file with losses at its receivers, small caches, and timers of a stream that ends soon."""
    text = text.replace('rtt = "2ms"', f'rtt = "2ms"\nparameters = {{ {LOSSY} }}\n#')
    return text.replace('role = "receiver"', 'role = "receiver"\nloss = { loss = "5%" }').replace("2GiB", "16MiB")


@pytest.mark.network
@needs_namespaces
@pytest.mark.parametrize("recipe", [AWS, GOOGLE], ids=["aws", "google"])
def test_recipe_delivers_where_groups_are_joined_by_igmp_2(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / recipe.file
    file.write_text(_short((FOLDER / recipe.file).read_text()))
    with cloud(*recipe.networks) as hosts:
        words = [f"{node}={hosts[host].holder.pid}" for node, host in recipe.nodes.items()]
        command = [sys.executable, "-m", "tests.net.cloud.tree", str(file), *words]
        done = subprocess.run(
            hosts["gateway"].wrap(command), capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["whole"].values()) == {True}, found
    assert found["lost"] == []
    assert min(found["repaired"].values()) > 0
    for node, host in recipe.nodes.items():
        group = recipe.groups.get(host)
        assert group is None or found["groups"][node][group] == "V2"
        rows = {(row["check"], row["subject"]): row for row in found["findings"][node]}
        assert [row for row in rows.values() if row["level"] == "fault"] == []
        assert {row["found"] for (check, _), row in rows.items() if check == "IGMP version"} == {"version 2, forced"}
