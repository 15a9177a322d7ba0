"""Files of `pgm render` for Grafana and Kubernetes, held against the schemas of those programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.monitor.prometheus import Metrics
from pgm.core.counters import ROWS
from tests.cli.command import invoked
from tests.net.support.lab import ROOT

TREES = ROOT / "deploy" / "topologies"
FLOOR = TREES / "trading-floor.toml"
"""A file whose nodes have fixed addresses on several hosts."""

# kubernetes-validate leaves its schemas open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def rendered(form: str, *options: str, file: Path = FLOOR) -> str:
    done = invoked("render", file, "--format", form, *options)
    assert done.code == 0, done
    return done.out


def manifests(form: str, file: Path = FLOOR) -> dict[str, Any]:
    """Return the objects of a form by their kinds, after the newest schema of Kubernetes has accepted them."""
    found = {one["kind"]: one for one in yaml.safe_load_all(rendered(form, file=file))}
    for kind, one in found.items():
        if kind != "NetworkAttachmentDefinition":  # a type of Multus, which Kubernetes has no schema for
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    return found


def test_dashboard_keeps_its_panels_in_the_schema_of_grafana() -> None:
    text = json.loads(rendered("grafana"))
    read = json.loads(json.dumps(Dashboard.from_json(text), cls=JSONEncoder))
    panels = {panel["title"]: panel for panel in read["panels"]}
    assert len(panels) == len(text["panels"])
    for panel in text["panels"]:
        assert panels[panel["title"]]["targets"][0]["expr"] == panel["targets"][0]["expr"]
        assert panels[panel["title"]]["gridPos"] == panel["gridPos"]
    assert [one["name"] for one in read["templating"]["list"]] == ["datasource", "topology", "node"]


def test_dashboard_asks_for_series_that_exist() -> None:
    known = {f"pgm_{row.name}_total" for row in ROWS} | {"pgm_rejects_total", "pgm_cpu_seconds_total"}
    source = Path(Metrics.__init__.__code__.co_filename).read_text()
    for name in set(re.findall(r"pgm_\w+", rendered("grafana"))):
        assert name in known or f'"{name}"' in source, name


def test_pods_run_the_nodes_of_their_host() -> None:
    found = manifests("kubernetes")
    assert set(found) == {"ConfigMap", "DaemonSet"}
    assert found["ConfigMap"]["data"] == {FLOOR.name: FLOOR.read_text()}
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    nodes, agent = pod["containers"]
    assert nodes["command"] == ["pgm", "up", f"/etc/pgm/{FLOOR.name}", "--here"]
    assert agent["command"] == ["pgm", "agent", f"/etc/pgm/{FLOOR.name}"]
    assert agent["readinessProbe"] == agent["livenessProbe"]
    for container in (nodes, agent):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["runAsNonRoot"] is True


def test_pods_with_own_networks_get_the_addresses_of_the_file() -> None:
    found = list(yaml.safe_load_all(rendered("kubernetes-multus")))
    networks = [one for one in found if one["kind"] == "NetworkAttachmentDefinition"]
    template = manifests("kubernetes-multus")["DaemonSet"]["spec"]["template"]
    assert "hostNetwork" not in template["spec"]
    names = template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].split(", ")
    assert names == [one["metadata"]["name"] for one in networks]
    ranges = [json.loads(one["spec"]["config"])["ipam"] for one in networks]
    assert [one["range"] for one in ranges] == ["10.0.0.0/24", "10.0.2.0/24"]


def test_keys_of_pods_come_from_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(FLOOR.read_text())
    made = invoked("keys", "new", file, "--node", "exchange", "--write", "--key-dir", tmp_path / "keys")
    assert made.code == 0, made
    found = manifests("kubernetes", file)
    assert found["Secret"]["metadata"]["name"] == "pgm-trading-floor-keys"
    assert "data" not in found["Secret"]
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    assert {"name": "PGM_KEY_DIR", "value": "/keys"} in pod["containers"][0]["env"]
    assert "install -m 600 $file /keys/trading-floor/" in pod["initContainers"][0]["command"][2]


def test_pods_have_no_capability_for_protocol_113() -> None:
    invoked("render", TREES / "ipv6-protocol-113.toml", "--format", "kubernetes").complains(2, "capability", "udp")


@pytest.mark.parametrize("form", ["prometheus", "grafana", "kubernetes"])
def test_formats_of_whole_trees_take_no_node(form: str) -> None:
    invoked("render", FLOOR, "--format", form, "--node", "desk-1").complains(2, "--node does not apply", "omit --node")
