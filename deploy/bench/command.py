"""`pgm bench`: speed of pgm beside other transports on the same path."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from deploy.bench.benchmarks.files import files
from deploy.bench.benchmarks.idle import idle
from deploy.bench.benchmarks.latency import latency
from deploy.bench.benchmarks.messages import messages
from deploy.bench.benchmarks.pacing import pacing
from deploy.bench.benchmarks.record import record
from deploy.bench.benchmarks.relay import relay
from deploy.bench.benchmarks.repair import repair
from deploy.bench.benchmarks.scale import scale
from deploy.bench.benchmarks.signed import signed
from deploy.bench.benchmarks.throughput import throughput
from deploy.bench.contenders.files import FILE_CONTENDERS, select_file_contenders
from deploy.bench.contenders.registry import CONTENDERS, require_known, select_contenders
from deploy.bench.lan import MOST_RECEIVERS
from deploy.bench.machine import describe, load_warning
from deploy.bench.peers.messages import NUMBER_OCTETS
from deploy.bench.plot import plot, require_kind
from deploy.bench.ratios import Ratios, ratios_of
from deploy.bench.settings import SIZES, BenchSettings, FilesSettings, Row, ScaleSettings, allowed_buffer
from deploy.bench.tree import MOST_SIMULATED
from deploy.bench.view import ratios_table, remarks, rows_table
from deploy.terminal.options import PATH, option, parsed
from deploy.terminal.output import command, print_json
from deploy.terminal.svg import require_matplotlib
from deploy.terminal.tables import console
from pgm.errors import UsageError
from pgm.net.control.signals import heed_signals
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.parameters import ROWS, Parameters
from pgm.units import format_octets, parse_fraction, parse_octets, parse_rate

BENCHMARKS: dict[str, Callable[[BenchSettings], Awaitable[list[Row]]]] = {
    "throughput": throughput,
    "latency": latency,
    "repair": repair,
    "relay": relay,
    "pacing": pacing,
    "idle": idle,
    "scale": scale,
    "messages": messages,
    "record": record,
    "signed": signed,
    "files": files,
}
_BY_DEFAULT = ("throughput", "latency", "repair")
_RATIO_OF = {
    "throughput": ("mb_per_s", "size"),
    "latency": ("mean_us", "size"),
    "repair": ("mb_per_s", "part"),
    "messages": ("messages_per_s", "mtu"),
    "files": ("seconds", "size"),
}
# --contenders applies to these benchmarks, and to files.
_CONTENDED = ("throughput", "latency", "repair", "relay", "pacing", "scale", "messages")
# Benchmarks with a fixed network; --path applies to the others.
_ONLY_ON = {"idle": "loopback", "record": "loopback", "files": "namespaces"}
_MOVES = "absolute figures move between machines and with their load; compare the ratios"


def _numbers(_: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in value.split(",")) if value else ()
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a list of numbers; separate numbers by commas", param=param
        ) from None
    if any(number < 1 for number in numbers):
        raise click.BadParameter("numbers must be 1 or more", param=param)
    return numbers


def _names(_: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if value else ()


def _read_all(
    parse: Callable[[str], int], context: click.Context, param: click.Parameter, value: str
) -> tuple[int, ...]:
    return tuple(parsed(parse, context, param, part.strip()) for part in value.split(","))


def _rates(context: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    rates = _read_all(parse_rate, context, param, value)
    row = ROWS["txw_max_rte"]
    if any(not row.low <= rate <= row.high for rate in rates):
        raise click.BadParameter(f"rates from {row.spell(row.low)} to {row.spell(row.high)}", param=param)
    return rates


def _check(names: tuple[str, ...], picture: Path | None, options: dict[str, Any]) -> None:
    """Raise `UsageError` for options that cannot work, before any measurement."""
    if picture is not None:
        require_matplotlib("--plot needs", "bench")
        require_kind(picture)
        if not picture.absolute().parent.is_dir():
            raise UsageError(
                f"{picture.parent} is not a folder", remedy="make the folder, or choose another --plot file"
            )
    if any(size < NUMBER_OCTETS for size in options["sizes"]):
        raise UsageError(f"a message needs {NUMBER_OCTETS} octets for its number", remedy="raise --sizes")
    if any(count > MOST_SIMULATED for count in options["simulated"]):
        raise UsageError(f"the simulator takes at most {MOST_SIMULATED:,} receivers", remedy="lower --simulated")
    _check_path(names, options["path"])
    require_known(options["contenders"])
    if options["contenders"] and not {*_CONTENDED, "files"}.intersection(names):
        raise UsageError(f"--contenders does not apply to {' or '.join(names)}", remedy="omit --contenders")
    for name in names:
        if name == "files":
            select_file_contenders(options["contenders"])
        elif name in _CONTENDED:
            select_contenders(name, options["contenders"])


def _check_path(names: tuple[str, ...], path: str) -> None:
    for name in names:
        only = _ONLY_ON.get(name, path)
        if path not in ("auto", only):
            raise UsageError(f"{name} is not measured on --path {path}", remedy=f"use --path {only}, or omit --path")


@click.command()
@click.argument("benchmarks", nargs=-1, type=click.Choice(list(BENCHMARKS)), metavar="[BENCHMARK]...")
@option("--seconds", type=click.FloatRange(0.1), default=5.0, help="Duration of one run.")
@option("--runs", type=click.IntRange(1), default=3, help="Good runs for one result.")
@option("--sizes", callback=_numbers, default=",".join(map(str, SIZES)), help="Octets of a message, in throughput; several separated by commas.")  # fmt: skip
@click.option(
    "--contenders",
    callback=_names,
    help=f"Run only these, separated by commas: {', '.join([one.name for one in CONTENDERS] + [one.name for one in FILE_CONTENDERS])}.",
)
@option(
    "--path",
    type=click.Choice(["auto", "namespaces", "loopback"]),
    default="auto",
    help="Network of the measurement: network namespaces, or the loopback interface. auto chooses namespaces if available. idle and record always use loopback, files namespaces.",
)
@option(
    "--precision",
    callback=partial(parsed, parse_fraction),
    default="5%",
    help="Precision of a lossless rate; with 100% the first lossless rate is enough.",
)
@option(
    "--rcvbuf",
    callback=partial(parsed, parse_octets),
    default=format_octets(Parameters().so_rcvbuf),
    help="Socket buffers of all contenders; at most the buffer that the kernel grants without privileges.",
)
@option(
    "--window", callback=partial(parsed, parse_octets), default="256MiB", help="Octets that a sender keeps for repairs."
)
@option("--loss", callback=partial(parsed, parse_fraction), default="1%", help="Random loss on the path, in repair.")
@option("--burst", type=click.IntRange(10), default=10_000, help="Consecutive packets lost, in repair.")
@option("--receivers", callback=_numbers, default="1,2,4,8", help="Number of receiving processes, in scale.")
@option("--simulated", callback=_numbers, default="100,1000,10000", help="Number of simulated receivers, in scale.")
@option(
    "--rates", callback=_rates, default="1Mbit/s,100Mbit/s,1Gbit/s,4Gbit/s", help="Rates set for a source, in pacing."
)
@option(
    "--file-size",
    "file_sizes",
    callback=partial(_read_all, parse_octets),
    default="1GB",
    help="Octets of the file, in files; several separated by commas.",
)
@option("--file-receivers", type=click.IntRange(1, MOST_RECEIVERS), default=4, help="Number of receivers, in files.")
@option(
    "--uftp-rates",
    callback=_rates,
    default="800Mbit/s,1600Mbit/s,3200Mbit/s",
    help="Rates for uftp, in files; the best result counts.",
)
@click.option(
    "--plot", "picture", type=PATH, metavar="FILE", help="Draw the results to a file, such as out.png or out.svg."
)
@command
def bench(benchmarks: tuple[str, ...], picture: Path | None, as_json: bool, **options: Any) -> None:
    """Measure BENCHMARKs on this machine; without any name, throughput, latency and repair.

    The benchmarks are throughput, latency, repair, relay, pacing, idle, scale, messages, record, signed and files. Contenders run
    interleaved, trial by trial, on the same path with the same socket buffers. Sender and receiver are processes of their
    own. pgm runs on its drivers. Plain sockets give the upper limit and the naive bound. OpenPGM and ZeroMQ run if they
    are installed. A lossless rate is the highest rate at which several consecutive runs lost nothing. Bisection finds
    this rate. A full run takes about an hour.

    \b
    pgm bench                                  # throughput, latency and repair
    pgm bench throughput --sizes 1400 --seconds 1 --runs 1
    pgm bench latency --contenders ours-busy-poll,raw-busy-poll
    pgm bench throughput latency --json --plot out.png
    pgm bench files --file-size 1GB            # beside uftp, if it is installed
    """  # fmt: skip
    names = tuple(dict.fromkeys(benchmarks or _BY_DEFAULT))
    _check(names, picture, options)
    options["rcvbuf"] = allowed_buffer(options["rcvbuf"])
    machine = describe()
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="pgm-bench-") as folder:
        of_scale = ScaleSettings(options.pop("receivers"), options.pop("simulated"))
        of_files = FilesSettings(*(options.pop(key) for key in ("file_sizes", "file_receivers", "uftp_rates")))
        settings = BenchSettings(**options, scale=of_scale, files=of_files, folder=Path(folder), say=_say)
        if as_json:
            settings = attrs.evolve(settings, emit=print_json)
        _say(f"{machine['cpu']}, {machine['cpus']} processors; socket buffers of {settings.rcvbuf:,} octets")
        show = (lambda _name, _rows: None) if as_json else _show
        trio.run(_run, names, settings, rows, show)
    notes = [_MOVES, *filter(None, [load_warning(machine)])]
    if as_json:
        ratios = {name: _ratios(name, benchmark_rows) for name, benchmark_rows in rows.items()}
        print_json({"ratios": ratios, "machine": machine, "socket_buffer": options["rcvbuf"], "notes": notes})
    else:
        _say("; ".join([f"load {machine['load']} at the start", *notes]))
    if picture is not None:
        plot(picture, rows, machine)


async def _run(
    names: tuple[str, ...], settings: BenchSettings, rows: dict[str, list[Row]], show: Callable[[str, list[Row]], None]
) -> None:
    """Run the benchmarks one after the other. A signal ends all processes of the benchmark first."""
    async with open_plain_nursery() as nursery:
        await nursery.start(heed_signals)
        for name in names:
            rows[name] = await BENCHMARKS[name](settings)
            show(name, rows[name])
        nursery.cancel_scope.cancel()


def _say(text: str) -> None:
    print(f"pgm: {text}", file=sys.stderr, flush=True)


def _ratios(name: str, rows: list[Row]) -> Ratios:
    return ratios_of(rows, *_RATIO_OF[name]) if name in _RATIO_OF else {}


def _show(name: str, rows: list[Row]) -> None:
    terminal = console()
    terminal.print()
    terminal.print(rows_table(name, rows, terminal.width))
    ratios = _ratios(name, rows)
    if ratios:
        terminal.print()
        terminal.print(ratios_table(name, rows, ratios, _RATIO_OF[name][1], terminal.width))
    terminal.print()
    for remark in remarks(rows):
        terminal.print(remark)
    terminal.print()
