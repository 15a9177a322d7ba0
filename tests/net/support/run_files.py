"""Send a file through a relay over lossy last hops.

Example: `python tests/net/support/run_files.py --size 200MB --loss 1% 20%`.

The script makes a network of four hosts, pipes a file of random octets into `pgm send`, lets four `pgm recv` write
their output, and compares. It prints a row per last hop with the losses there, and exits with 1 if a file is
incomplete.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from pgm.units import format_fraction, parse_fraction, parse_octets, parse_rate  # noqa: E402
from tests.net.support.files import Case, Hop, Outcome, Way, network, transfer  # noqa: E402
from tests.net.support.lab import why_not  # noqa: E402

_SHOW_S = 10.0  # between two lines of progress where no terminal is
# Nothing but its rate slows a source down. A fifth lost asks of receivers to read half as much again as is sent.
_RATES = ("200Mbit/s", "100Mbit/s")
_MOST_LINES = 40  # of the logs of what failed

# heading, width; text is set to the left
_COLUMNS = (
    ("way", -8),
    ("loss", -4),
    ("relay", -10),
    ("rate", 9),
    ("whole", -5),
    ("wall s", 7),
    ("MB/s", 6),
    ("CPU s", 6),
    ("load", 5),
    ("hop", -7),
    ("seen", 8),
    ("lost", 7),
    ("share", 7),
    ("train", 6),
    ("runs", 7),
    ("mean run", 8),
    ("longest", 7),
)
_LEGEND = """
wall s: from the start of `pgm send` to the end of all processes; MB/s: of the file, from its first sign to the end of
the last receiver; CPU s: of all processes; load: of the machine, everybody's, at the end.
seen, lost: packets of the kernel that came down the hop, data and control, where a train is one (way trains), or
PGM packets (way injector); share: lost of seen; train: mean PGM packets in one that carried data.
runs: how often data packets in a row were lost, up to the next that was not; mean run, longest: how many.
"""


def _line(values: list[str]) -> str:
    return "  ".join(
        value.ljust(-width) if width < 0 else value.rjust(width)
        for value, (_, width) in zip(values, _COLUMNS, strict=True)
    ).rstrip()


def _hop_values(hop: Hop) -> list[str]:
    longest = max(hop.runs, default=0)
    counts = [f"{hop.seen:,}", f"{hop.lost:,}", f"{hop.share:.2%}", f"{hop.train:.1f}", f"{len(hop.runs):,}"]
    return [hop.name, *counts, f"{hop.mean_run:.2f}", str(longest)]


def _rows(outcome: Outcome, cpu_s: float) -> list[str]:
    case = outcome.case
    said = [case.way.value, format_fraction(case.loss), case.relay, case.rate, "yes" if outcome.is_whole else "NO"]
    said += [f"{outcome.seconds:.1f}", f"{outcome.mb_per_s:.1f}", f"{cpu_s:.1f}", f"{os.getloadavg()[0]:.1f}"]
    blank = [""] * len(said)
    return [_line([*(said if at == 0 else blank), *_hop_values(hop)]) for at, hop in enumerate(outcome.hops)]


def _details(outcome: Outcome) -> str:
    """Return NAKs and repairs in one line."""
    relay = outcome.counters["relay"]
    receivers = [counters for name, counters in outcome.counters.items() if name not in ("source", "relay")]

    def total(key: str) -> str:
        return f"{sum(counters.get(key, 0) for counters in receivers):,}"

    seen, lost = outcome.naks
    return (
        f"  receivers: {total('missing_sqns')} sqns missing, {total('nak_sqns')} NAKed in {total('nak_packets')} NAKs, "
        f"{total('duplicate_packets')} packets twice, {total('socket_drops')} dropped for want of buffer; "
        f"relay: {relay.get('rdata_packets', 0):,} RDATA, {relay.get('rdata_forwarded', 0):,} passed on; "
        f"on the way up the rule saw {seen:,} packets and dropped {lost:,}"
    )


class _Progress:
    """Progress of the slowest receiver."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._begun = self._shown = time.monotonic()

    def show(self, octets: int) -> None:
        """Show the progress: at once on a terminal, now and then in a log."""
        now = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if not is_terminal and now - self._shown < _SHOW_S:
            return
        self._shown = now
        text = (
            f"{self._case.way.value} {format_fraction(self._case.loss)} {self._case.relay}: "
            f"{octets / 1e6:,.1f} of {self._case.octets / 1e6:,.1f} MB, {now - self._begun:.0f} s"
        )
        print(f"\r{text}   " if is_terminal else text, end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line."""
        if sys.stderr.isatty():
            print("\r", end="", file=sys.stderr)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_LEGEND
    )
    parser.add_argument("--size", type=parse_octets, default="200MB", help="of the file (200MB)")
    parser.add_argument("--loss", type=parse_fraction, nargs="+", default=[0.01, 0.2], help="of the hops (1%% 20%%)")
    parser.add_argument("--way", type=Way, nargs="+", default=list(Way), metavar="WAY", help="trains, single, injector")
    parser.add_argument("--relay", nargs="+", default=["repairer"], choices=("repairer", "aggregator"))
    parser.add_argument(
        "--rate", nargs="+", default=list(_RATES), help="of the stream, for each loss (200Mbit/s 100Mbit/s)"
    )
    parser.add_argument("--patience", type=float, default=900.0, help="seconds until a transfer is given up (900)")
    parser.add_argument("--log", action="store_true", help="print the processes' logs, all of them")
    options = parser.parse_args()
    for rate in options.rate:
        parse_rate(rate)
    return options


def main() -> int:
    """Run the transfers one by one."""
    options = _arguments()
    if why_not():
        print(f"{sys.argv[0]}: {why_not()}", file=sys.stderr)
        return 2
    failed = 0
    print(_line([heading for heading, _ in _COLUMNS]), flush=True)
    with network() as net:
        rates = dict(zip(options.loss, itertools.cycle(options.rate), strict=False))
        for relay, loss, way in itertools.product(options.relay, options.loss, options.way):
            case = Case(way, loss, relay=relay, rate=rates[loss], octets=options.size)
            progress, before_s = _Progress(case), _cpu_s()
            outcome = transfer(net, case, options.patience, progress.show)
            progress.end()
            print("\n".join([*_rows(outcome, _cpu_s() - before_s), _details(outcome)]), flush=True)
            failed += not outcome.is_whole
            if options.log or not outcome.is_whole:
                lines = outcome.log.splitlines()
                print("\n".join(lines if options.log else lines[-_MOST_LINES:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
