"""Check of a tree by a table of rules. Each rule is a function that yields its findings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection

import attrs

from pgm.topology.locate import KeyPath
from pgm.topology.model import Topology
from pgm.topology.problems import Problem, error_of
from pgm.topology.reading import ParsedTopology, read
from pgm.topology.rules import addresses as rules_addresses
from pgm.topology.rules import keys as rules_keys
from pgm.topology.rules import lines as rules_lines
from pgm.topology.rules import parity as rules_parity
from pgm.topology.rules import repairers as rules_repairers
from pgm.topology.rules import sealing as rules_sealing
from pgm.topology.rules import shape as rules_shape
from pgm.topology.rules import sources as rules_sources
from pgm.topology.rules import timers as rules_timers
from pgm.topology.rules import transport as rules_transport
from pgm.topology.rules import tree as rules_tree
from pgm.topology.rules import window_time as rules_window_time
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

RULES: tuple[Rule, ...] = (
    *rules_shape.RULES,
    *rules_tree.RULES,
    *rules_repairers.RULES,
    *rules_sources.RULES,
    *rules_lines.RULES,
    *rules_addresses.RULES,
    *rules_transport.RULES,
    *rules_timers.RULES,
    *rules_window_time.RULES,
    *rules_parity.RULES,
    *rules_keys.RULES,
    *rules_sealing.RULES,
)


@attrs.frozen
class CheckReport:
    """Errors and warnings of `check`, each in the order of the file."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def is_good(self) -> bool:
        """Return whether the tree may run. Warnings do not prevent that."""
        return not self.errors


def check(topology: Topology) -> CheckReport:
    """Apply every rule to a topology. Problems of the file never raise an exception."""
    return _check(topology, ())


def check_file(path: str | os.PathLike[str]) -> CheckReport:
    """Load and check a file; return the problems of form and of meaning. No problem of the file is an exception."""
    return check_reading(read(path))


def check_reading(reading: ParsedTopology) -> CheckReport:
    """Check the readable part of a file, and add the problems of the rest."""
    if reading.topology is None:
        return CheckReport(reading.problems)
    report = _check(reading.topology, reading.unread_tables)
    errors = sorted((*reading.problems, *report.errors), key=lambda problem: problem.line)
    return attrs.evolve(report, errors=tuple(errors))


def load_checked(path: str | os.PathLike[str]) -> Topology:
    """Load a topology that passes `check`, and warn of former names. Raises `TopologyError` with all errors."""
    reading = read(path)
    report = check_reading(reading)
    if reading.topology is None or report.errors:
        raise error_of(report.errors)
    for problem in report.warnings:
        if problem.rule == rules_shape.FORMER_NAME:
            warnings.warn(str(problem), FutureWarning, stacklevel=2)
    return reading.topology


def _check(topology: Topology, unread_tables: Collection[KeyPath]) -> CheckReport:
    tree = Tree.of(topology)
    problems: dict[bool, list[Problem]] = {False: [], True: []}
    for rule in RULES:
        for finding in rule.find(tree):
            if _rests_on_any(finding, unread_tables):
                continue  # the finding may follow from an unreadable value, which is already reported
            line = topology.lines.of(finding.path)
            problem = Problem(topology.path, line, rule.name, finding.message, finding.remedy)
            problems[rule.is_warning].append(problem)
    errors, cautions = (tuple(sorted(problems[kind], key=lambda problem: problem.line)) for kind in (False, True))
    return CheckReport(errors, cautions)


def _rests_on_any(finding: RuleFinding, unread_tables: Collection[KeyPath]) -> bool:
    return finding.path[:2] in unread_tables or any(
        path[: len(root)] == root for root in finding.rests_on for path in unread_tables
    )
