"""Kubernetes manifests of a topology: the file, the keys, and a DaemonSet that runs on each host the nodes of its addresses."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.render.systemd import memory_of, stop_seconds
from pgm.errors import UsageError
from pgm.fleet.hosts import hosts_of
from pgm.net.keys.key_directory import DIRECTORY_VARIABLE, place_of
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan, SegmentPlan
from pgm.units import MIB

_USER = 65532  # without a name, as in images without a distribution
_AGENT_OCTETS = 256 * MIB
_CONFIG, _SECRET, _KEYS, _RUNTIME = "/etc/pgm", "/secret", "/keys", "/run/pgm"
_SOCKETS = f"{_RUNTIME}/nodes"  # a folder of its own, because a volume is open to all users
_RUNTIME_OCTETS = 64 * MIB  # sockets and what a process tells after its end, beside the cache files
_PROBE_S = 10
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

Manifest = dict[str, Any]


def kubernetes_files(
    topology: Topology, plans: Mapping[str, NodePlan], file: Path, image: str, *, has_own_networks: bool
) -> dict[str, str]:
    """Return the manifests as one file by its name. Its documents are JSON, which is also YAML.

    With `has_own_networks` Multus gives each pod an interface for each segment. Otherwise pods use the network of their
    hosts. Raises `UsageError`.
    """
    if any(segment.transport == "ip" for plan in plans.values() for segment in plan.segments):
        raise UsageError(
            'transport = "ip" needs a capability that these pods do not have', remedy='use transport = "udp" there'
        )
    objects = [_config_map(topology.name, file)]
    if _key_folder(topology.name, plans):
        objects.append(_secret(topology.name))
    segments = _segments(plans.values())
    if has_own_networks:
        objects += [_network(topology.name, name, addresses) for name, addresses in segments.items()]
    networks = [_object_name(topology.name, name) for name in segments] if has_own_networks else []
    objects.append(_daemon_set(topology, plans, file.name, image, networks))
    documents = "".join(f"---\n{json.dumps(one, indent=2)}\n" for one in objects)
    return {f"pgm-{topology.name}.yaml": documents}


def _object_name(*parts: str) -> str:
    """Return a name that Kubernetes permits."""
    return "-".join(["pgm", *parts]).lower().replace("_", "-").replace(".", "-").replace("/", "-")[:63]


def _meta(topology: str, *parts: str) -> Manifest:
    labels = {"app.kubernetes.io/name": "pgm", "app.kubernetes.io/instance": topology}
    return {"name": _object_name(topology, *parts), "labels": labels}


def _config_map(topology: str, file: Path) -> Manifest:
    data = {file.name: file.read_text()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(topology), "data": data}


def _secret(topology: str) -> Manifest:
    """Return an empty Secret. Private keys are put into it on the hosts where `pgm keys new` made them."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _meta(topology, "keys"), "type": "Opaque"}


def _key_folder(topology: str, plans: Mapping[str, NodePlan]) -> str:
    """Return the folder of the private keys of a tree, or an empty string for a file without keys."""
    has_keys = any(plan.identity.listed for plan in plans.values())
    return str(place_of(topology, "", chosen=Path(_KEYS)).directory) if has_keys else ""


def _segments(plans: Iterable[NodePlan]) -> dict[str, tuple[SegmentPlan, ...]]:
    """Return the segments on which nodes have addresses, each with its places."""
    found: dict[str, tuple[SegmentPlan, ...]] = {}
    for plan in plans:
        for place in plan.segments:
            if place.address is not None:
                found[place.name] = (*found.get(place.name, ()), place)
    return found


def _network(topology: str, segment: str, places: Sequence[SegmentPlan]) -> Manifest:
    """Return the network of one segment, which gives pods the addresses that the file gives nodes there."""
    addresses = sorted({ipaddress.ip_address(place.address or "") for place in places}, key=int)
    subnet = _subnet(places[0].interface, str(addresses[0]))
    config = {
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": "eth1",  # interface of the hosts in the segment; edit it if it has another name
        "mode": "bridge",
        "ipam": {
            "type": "whereabouts",
            "range": subnet,
            "range_start": str(addresses[0]),
            "range_end": str(addresses[-1]),
        },
    }
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": _meta(topology, segment),
        "spec": {"config": json.dumps(config)},
    }


def _subnet(interface: str, address: str) -> str:
    """Return the subnet of a segment: that of the file, or else the usual one around an address."""
    if "/" in interface:
        return interface
    return str(ipaddress.ip_network(f"{address}/{64 if ':' in address else 24}", strict=False))


def _daemon_set(
    topology: Topology, plans: Mapping[str, NodePlan], file: str, image: str, networks: Sequence[str]
) -> Manifest:
    meta = _meta(topology.name)
    hosts = [[plans[name] for name in host.nodes] for host in hosts_of(topology, plans)]
    memory = max((sum(map(memory_of, nodes)) for nodes in hosts), default=0)
    caches = max((sum(plan.parameters.cache_bytes for plan in nodes) for nodes in hosts), default=0)
    template_meta: Manifest = {"labels": meta["labels"]}
    if networks:
        template_meta["annotations"] = {"k8s.v1.cni.cncf.io/networks": ", ".join(networks)}
    keys = _key_folder(topology.name, plans)
    volumes: list[Manifest] = [
        {"name": "topology", "configMap": {"name": meta["name"]}},
        {"name": "runtime", "emptyDir": {"medium": "Memory", "sizeLimit": _mib(_RUNTIME_OCTETS + caches)}},
    ]
    if keys:
        secret = {"secretName": _object_name(topology.name, "keys"), "optional": True}
        volumes.append({"name": "secret", "secret": secret})
        volumes.append({"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
    spec: Manifest = {
        "securityContext": {
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        # A source serves repairs for a while before it leaves.
        "terminationGracePeriodSeconds": max(map(stop_seconds, plans.values())),
        "initContainers": [_preparer(image, keys)],
        "containers": [_nodes(image, file, memory, keys), _agent(image, file, topology.fleet.port)],
        "volumes": volumes,
    }
    if not networks:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": meta["labels"]},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": template_meta, "spec": spec},
        },
    }


def _mib(octets: int) -> str:
    return f"{octets // MIB + 1}Mi"


def _mounts(keys: str = "") -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": "topology", "mountPath": _CONFIG, "readOnly": True},
        {"name": "runtime", "mountPath": _RUNTIME},
    ]
    return [*mounts, {"name": "keys", "mountPath": str(Path(keys).parent), "readOnly": True}] if keys else mounts


def preparation(keys: str) -> str:
    """Return the shell commands that make the folders of the nodes, and copy the private keys into `keys`.

    Nodes refuse folders in which other users may write, and keys that others may read. A volume has the mode 0777, and
    its files belong to root.
    """
    made = {_RUNTIME: _SOCKETS} | ({str(Path(keys).parent): keys} if keys else {})
    lines = [f"chmod 755 {volume} && mkdir -m 700 {folder}" for volume, folder in made.items()]
    if keys:
        lines.append(f"for file in {_SECRET}/*; do [ ! -f $file ] || install -m 600 $file {keys}/; done")
    return " && ".join([*lines, f"chown -R {_USER}:{_USER} {' '.join(made.values())}"])


def _preparer(image: str, keys: str) -> Manifest:
    mounts = [{"name": "runtime", "mountPath": _RUNTIME}]
    if keys:
        mounts.append({"name": "keys", "mountPath": str(Path(keys).parent)})
        mounts.append({"name": "secret", "mountPath": _SECRET})
    return {
        "name": "prepare",
        "image": image,
        "command": ["sh", "-c", preparation(keys)],
        "securityContext": _CONFINED | {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
        "volumeMounts": mounts,
    }


def _nodes(image: str, file: str, memory: int, keys: str) -> Manifest:
    return {
        "name": "nodes",
        "image": image,
        "command": ["pgm", "up", f"{_CONFIG}/{file}", "--here"],
        "env": [{"name": "PGM_RUNTIME_DIR", "value": _SOCKETS}, {"name": DIRECTORY_VARIABLE, "value": _KEYS}],
        "resources": {"requests": {"memory": _mib(memory)}, "limits": {"memory": _mib(memory)}},
        "securityContext": _CONFINED | {"runAsNonRoot": True},
        "volumeMounts": _mounts(keys),
    }


def _agent(image: str, file: str, port: int) -> Manifest:
    """Return the container of the agent. Its probes ask on the pod's own loopback, so they need no token."""
    ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}/healthz', timeout=5)"
    probe = {"exec": {"command": ["python3", "-c", ask]}, "periodSeconds": _PROBE_S, "timeoutSeconds": _PROBE_S}
    return {
        "name": "agent",
        "image": image,
        "command": ["pgm", "agent", f"{_CONFIG}/{file}"],
        "env": [{"name": "PGM_RUNTIME_DIR", "value": _SOCKETS}],
        "resources": {"requests": {"memory": _mib(_AGENT_OCTETS)}, "limits": {"memory": _mib(_AGENT_OCTETS)}},
        "securityContext": _CONFINED | {"runAsNonRoot": True},
        "startupProbe": probe | {"failureThreshold": 6},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "volumeMounts": _mounts(),
    }
