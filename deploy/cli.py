"""The `pgm` command. A subcommand is imported only when it is called, so that nodes start fast."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from typing import Any

import click

from deploy.terminal.exit_codes import EXIT_INTERRUPTED

# name -> module and one line for the overview
_COMMANDS = {
    "demo": (
        "deploy.demo.command",
        "Run a whole repair tree on this machine, with losses, and account for every packet.",
    ),
    "init": ("deploy.topology.init", "Write a first topology file, for this machine or for given hosts."),
    "check": ("deploy.topology.check", "Validate a topology file: list all problems with file, line and remedy."),
    "plan": (
        "deploy.plan.command",
        "Print the tree of a topology file with timers and reasons, and predict its sends, NAKs and repair latency.",
    ),
    "schema": ("deploy.topology.schema", "Print the JSON Schema of topology files, for editors."),
    "run": ("deploy.node.run", "Run one node of a topology in the foreground."),
    "replay": ("deploy.node.replay", "Replay the inputs of a node from a tape of pgm run, and show what it did."),
    "up": ("deploy.node.up", "Run all nodes of a topology on this machine."),
    "apply": ("deploy.node.apply", "Bring a running tree to another topology file, and lose nothing."),
    "send": ("deploy.stream.send", "Publish standard input."),
    "recv": ("deploy.stream.recv", "Write received messages to standard output."),
    "record": ("deploy.archive.record", "Record the messages of a receiver in an archive on disk."),
    "archive": ("deploy.archive.inspect", "Inspect an archive: list sessions, verify checksums, print messages."),
    "serve": ("deploy.archive.serve", "Serve an archive over Arrow Flight."),
    "sim": (
        "deploy.simulation.command",
        "Simulate a topology in virtual time, with any number of receivers, losses and faults, by seed.",
    ),
    "report": ("deploy.report.command", "Summarise telemetry as a page or JSON: links, bursts, repairs, timers."),
    "fleet": (
        "deploy.fleet.command",
        "Keep tables of all nodes' events by minute, and find changes of regime in them.",
    ),
    "tune": ("deploy.tune.command", "Find timers by simulating the tree with the losses that telemetry shows."),
    "bench": ("deploy.bench.command", "Measure the speed on this machine, beside plain sockets, OpenPGM and ZeroMQ."),
    "status": ("deploy.status.status", "Show the counters of the running nodes of a topology."),
    "top": ("deploy.monitor.top", "Watch the running nodes on a live screen."),
    "agent": ("deploy.monitor.agent", "Serve the state of this host to the commands with --fleet."),
    "monitor": ("deploy.monitor.monitor", "Serve the counters of running nodes over HTTP, to browsers and Prometheus."),
    "ctl": ("deploy.status.ctl", "Change settings of running nodes: rate, injected losses, reduced budgets."),
    "explain": ("deploy.status.explain", "Explain what befell one packet: where it was lost, why its repair was late."),
    "doctor": (
        "deploy.doctor.command",
        "Check this machine for the nodes of a topology: kernel, interfaces, installed packages.",
    ),
    "bundle": ("deploy.bundle.command", "Write one archive with all that support needs, without secrets."),
    "netcheck": (
        "deploy.netcheck.command",
        "Check the network between the hosts of a topology, by their agents: multicast, MTU, loss, clocks, leaks.",
    ),
    "keys": ("deploy.keys.command", "Make, check, show, rotate and revoke the keys of nodes."),
    "render": (
        "deploy.render.command",
        "Write systemd units, Kubernetes manifests, alarms or a dashboard for a topology.",
    ),
    "manual": ("deploy.terminal.manual", "Write man pages."),
}

# name -> extra, and a module that it brings: the overview tells what to install
_EXTRAS = {"monitor": ("monitor", "hypercorn"), "top": ("monitor", "textual"), "record": ("arrow", "pyarrow"), "serve": ("arrow", "pyarrow"), "archive": ("arrow", "pyarrow"), "report": ("report", "pyarrow"), "fleet": ("spark", "pyspark")}  # fmt: skip


def _lacking(name: str) -> str:
    """Return what a command needs and this installation lacks."""
    extra, module = _EXTRAS.get(name, ("", ""))
    if not module or importlib.util.find_spec(module) is not None:
        return ""
    return f" Needs: pip install 'pgm-repair-network[{extra}]'"


class _LazyGroup(click.Group):
    """Command group that imports a subcommand from the table when it is needed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # during the import of a command; a running command handles Ctrl-C itself
            sys.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        subcommand: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)
        if not gc.isenabled():  # as `run` leaves it
            gc.freeze()
            gc.enable()
        return subcommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; the commands are {', '.join(_COMMANDS)}"
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text + _lacking(name)) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pgm-repair-network", prog_name="pgm")
def main() -> None:
    """Reliable multicast with local repair, after RFC 3208.

    Try `pgm demo` first. Then write a topology file with `pgm init` (docs/reference/topology.md) and check it with
    `pgm check` and `pgm plan`. Try the file with `pgm sim` or `pgm up`. Run `pgm run FILE --node NAME` on each host.

    Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file.
    """
    if sys.stderr is None:  # the caller closed descriptor 2; error messages must not reach a file opened later
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # stays open until the process ends
