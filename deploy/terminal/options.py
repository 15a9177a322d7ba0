"""Click options, types and parsers that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from pgm.errors import UnitError

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)

option = partial(click.option, show_default=True)
topology_file = click.argument("file", type=PATH)
telemetry_folder = click.option("--telemetry", type=FOLDER, help="Write protocol events as Parquet files into this folder, for `pgm report`.")  # fmt: skip
tape_folder = click.option("--tape", type=FOLDER, help="Keep the last inputs of each node in this folder, for `pgm replay`.")  # fmt: skip
pattern_counts = click.option("--count", "counts", multiple=True, metavar="PATTERN=N", help="Number of nodes of a pattern; may be repeated.")  # fmt: skip
segment_delays = click.option("--delay", "delays", multiple=True, metavar="SEGMENT=TIME", help="Delay from a segment to a node, instead of the delay from telemetry or rtt; may be repeated.")  # fmt: skip
predicted_file = click.option("--predicted", type=PATH, metavar="PLAN", help="Show the prediction of `pgm plan --json` in this file beside what was measured.")  # fmt: skip
message_size = option("--size", type=click.IntRange(8), default=1400, help="Octets of a test message.")
loss_seed = click.option("--seed", help="Seed of the losses that the topology injects.")


def loss_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for losses instead of those of the topology file."""
    uplink = click.option(
        "--uplink-loss", metavar="SHARE", help="Random loss between the tiers, instead of the file's."
    )
    bursts = click.option("--burst-loss", metavar="SHARE", help="Loss in bursts of mean 8 packets on every last hop, instead of the file's.")  # fmt: skip
    random = click.option("--loss", metavar="SHARE", help="Random loss on every last hop, instead of the file's.")
    return random(bursts(uplink(function)))


def generated_messages(text: str) -> Callable[..., Any]:
    """Return the option for the number of test messages."""
    return click.option("--generate", "messages", type=click.IntRange(0), default=0, metavar="N", help=text)


def parsed(parse: Callable[[str], Any], _: click.Context, param: click.Parameter, value: str) -> Any:
    """Return the parsed value of an option; the callback of an option is `partial(parsed, parse)`."""
    try:
        return parse(value)
    except UnitError as error:
        raise click.BadParameter(f"{error.message}; {error.remedy}", param=param) from None
