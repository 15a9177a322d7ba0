"""The `pgm` command: each subcommand is loaded when it is called, so that roles start fast."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from deploy.terminal.exit_codes import EXIT_INTERRUPTED

# name -> module and one line for the overview
_COMMANDS = {
    "demo": (
        "deploy.demo.command",
        "A whole repair tree on this machine, with losses, and the account of who got what from whom.",
    ),
    "check": ("deploy.topology.check", "Validate a topology file: all problems at once, with file, line and remedy."),
    "plan": ("deploy.topology.plan", "Print the tree of a topology file, and every node's addresses and timers."),
    "run": ("deploy.node.run", "Run one node of a topology in the foreground."),
    "up": ("deploy.node.up", "Run all nodes of a topology on this machine."),
    "send": ("deploy.stream.send", "Publish standard input."),
    "recv": ("deploy.stream.recv", "Print what is received."),
    "record": ("deploy.archive.record", "Record what a receiver gets into an archive on disk."),
    "archive": ("deploy.archive.inspect", "Look into an archive: what it holds, whether it is sound, its messages."),
    "serve": ("deploy.archive.serve", "Serve an archive over Arrow Flight."),
    "sim": (
        "deploy.simulation.command",
        "The same tree in virtual time, with any number of receivers, loss and faults, by seed.",
    ),
    "report": ("deploy.report.command", "What telemetry tells: links, bursts, repairs, timers, as a page or JSON."),
    "tune": ("deploy.tune.command", "Find timers by simulating the tree with the losses that telemetry shows."),
    "bench": ("deploy.bench.command", "Measure how fast this is here, beside plain sockets, OpenPGM and ZeroMQ."),
    "status": ("deploy.status.status", "Show what the running nodes of a topology have counted."),
    "top": ("deploy.monitor.top", "Watch the running nodes on a live screen."),
    "monitor": (
        "deploy.monitor.monitor",
        "Serve what running nodes have counted over HTTP, to browsers and Prometheus.",
    ),
    "ctl": ("deploy.status.ctl", "Change settings of running nodes: a rate, injected losses, small budgets."),
    "doctor": (
        "deploy.doctor.command",
        "Check this machine for the nodes of a topology: kernel, interfaces, what is installed.",
    ),
    "render": ("deploy.topology.render", "Write systemd units and kernel settings for the nodes of a topology."),
}


class _Lazy(click.Group):
    """Finds subcommands by the table, without importing the others."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # while a command is being loaded; later the command itself ends quietly
            sys.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(_COMMANDS)}"
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pgm-repair-network", prog_name="pgm")
def main() -> None:
    """Reliable multicast with local repair, after RFC 3208.

    Try `pgm demo` first. Then write a topology file (docs/reference/topology.md), look at it with `pgm check` and
    `pgm plan`, try it with `pgm sim` or `pgm up`, and run it with `pgm run FILE --node NAME` on each host.

    Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file.
    """
    if sys.stderr is None:  # closed by whoever started us; what is said there must not come out elsewhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lives
