"""Cores of another version in this process, behind the interface of this version's cores.

Both versions have modules of the same names. The modules of the other version are imported while those of this version are out of
`sys.modules`, and the reverse holds from then on. Modules of cores import nothing later, so that each version keeps
to its own. Values that cross are made anew from the fields that the classes of both versions have.
"""

from __future__ import annotations

import enum
import importlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from deploy.node.roles import build_core
from pgm.core.control_codes import NO_CONTROL_KEYS, ControlCodes
from pgm.core.effects import Effects
from pgm.core.interface import Core
from pgm.core.segment import Channel
from pgm.sim.world import CoreFactory
from pgm.topology.node_plan import NodePlan
from pgm.wire.formats import Nla, Tsi
from pgm.wire.train import Train

_PACKAGES = ("pgm", "aggregator", "repairer", "deploy")
_NEEDED = ("deploy.node.roles", "pgm.topology.load", "pgm.topology.plan", "pgm.core.effects", "pgm.wire.train")


def _ours() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in _PACKAGES}


class OtherVersion:
    """Modules of the files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._modules: dict[str, ModuleType] = {}
        with self._in_force():
            for name in _NEEDED:
                importlib.import_module(name)
        assert all(str(folder) in str(module.__file__) for module in self._modules.values())

    @contextmanager
    def _in_force(self) -> Iterator[None]:
        kept = _ours()
        for name in kept:
            del sys.modules[name]
        sys.modules.update(self._modules)
        sys.path.insert(0, self._folder)
        try:
            yield
        finally:
            sys.path.remove(self._folder)
            self._modules = _ours()
            for name in self._modules:
                del sys.modules[name]
            sys.modules.update(kept)

    def named(self, name: str) -> Any:
        """Return a module, such as "pgm.topology.load"."""
        return self._modules[name]

    def plans_of(self, text: str) -> dict[str, Any]:
        """Return the plans of a topology file, as the other version makes them."""
        with self._in_force():  # types of fields are read by the names of their modules
            plans: dict[str, Any] = self.named("pgm.topology.plan").plan_all(
                self.named("pgm.topology.load").loads(text)
            )
        return plans

    def translated(self, value: Any, modules: dict[str, ModuleType]) -> Any:
        """Return a value with the classes of `modules` in place of the classes of the same names."""
        kind = type(value)
        if isinstance(value, (tuple, list)) and kind in (tuple, list):
            return kind(self.translated(one, modules) for one in value)
        if kind.__module__.partition(".")[0] not in _PACKAGES:
            return value
        other = getattr(modules[kind.__module__], kind.__name__)
        if isinstance(value, enum.Enum):
            return other[value.name]
        known = {field.name for field in attrs.fields(other) if field.init}
        given = {field.name: getattr(value, field.name) for field in attrs.fields(kind) if field.name in known}
        return other(**{name.lstrip("_"): self.translated(one, modules) for name, one in given.items()})

    def ours(self, value: Any) -> Any:
        """Return a value of the other version as one of this version."""
        return self.translated(value, sys.modules)

    def theirs(self, value: Any) -> Any:
        """Return a value of this version as one of the other version."""
        return self.translated(value, self._modules)

    def core(self, plan: Any, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        """Return a core of the other version. `plan` is of the other version, too."""
        core = self.named("deploy.node.roles").build_core(plan, rng, bytes(tsi), now_ns)
        bridged: Core = BridgedCore(self, core)
        return bridged


class BridgedCore:
    """Core of another version. Attributes beside the interface are those of the core itself."""

    def __init__(self, version: OtherVersion, core: Any) -> None:
        self.version = version
        self.other = core
        self.control_codes = ControlCodes(NO_CONTROL_KEYS, core.counters)  # keys are not bridged
        self._kind: type = getattr(importlib.import_module(type(core).__module__), type(core).__name__)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the same name in this version, for `isinstance` of the simulator."""
        return self._kind

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read. The octets are a copy."""
        octets = train.buffer[train.offset : train.offset + train.length].copy()
        other = self.version.named("pgm.wire.train").Train.of(octets, train.stride)
        return self._ours(self.other.receive(other, self.version.theirs(channel), peer, now_ns))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due."""
        return self._ours(self.other.handle_deadline(now_ns))

    def grant(self, octets: int) -> Effects:
        """Let a receiver deliver more."""
        return self._ours(self.other.grant(octets))

    def _ours(self, effects: Any) -> Effects:
        found: Effects = self.version.ours(list(effects))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.other, name)


def mixed(version: OtherVersion, plans: dict[str, Any], older: set[str]) -> CoreFactory:
    """Return a factory of cores: those of the nodes that are in `older` at their start are of the other version."""

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.name not in older:
            return build_core(plan, rng, tsi, now_ns)
        return version.core(plans[plan.name], rng, tsi, now_ns)

    return build
