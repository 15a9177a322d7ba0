"""The command `pgm check`: the problems of a topology file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from deploy.terminal.exit_codes import EXIT_USAGE
from deploy.terminal.options import topology_file
from deploy.terminal.output import command, print_json
from pgm.topology.check import check_file
from pgm.topology.describe import report_json


@click.command()
@topology_file
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@command
def check(file: Path, strict: bool, as_json: bool) -> None:
    """Validate a topology FILE: syntax, names, addresses, the tree, and timers against each other.

    Prints every problem with file, line and remedy. Exits with 0 if the file is good, with 2 if it has errors.

    \b
    pgm check tree.toml
    pgm check tree.toml --strict && pgm up tree.toml
    """
    report = check_file(file)
    is_good = report.is_good and not (strict and report.warnings)
    if as_json:
        print_json({**report_json(report), "ok": is_good})
    else:
        for problem in report.errors:
            print(f"error: {problem}")
        for problem in report.warnings:
            print(f"warning: {problem}")
        if is_good:
            print(f"{file}: {'good' if not report.warnings else f'good; warnings: {len(report.warnings)}'}")
    if not is_good:
        sys.exit(EXIT_USAGE)
