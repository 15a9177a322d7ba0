"""The command `pgm schema`: the JSON Schema of topology files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from deploy.terminal.options import NEW_FILE
from deploy.terminal.output import command
from pgm.topology.schema import schema as topology_schema


@click.command()
@click.option("--out", type=NEW_FILE, help="Write the schema into this file instead of printing it.")
@command
def schema(out: Path | None, as_json: bool) -> None:
    """Print the JSON Schema of topology files, with which editors complete, explain and check keys.

    \b
    pgm schema --out pgm.schema.json

    Editors with a language server for TOML find the schema by the first line of a file: #:schema ./pgm.schema.json

    The schema has the form of each value, and the meaning of each key. `pgm check` has more: the ranges of values with
    units, and all rules between values. See docs/start/tutorial.md.
    """
    text = json.dumps(topology_schema(), indent=None if as_json else 2)
    if out is None:
        print(text)
    else:
        out.write_text(f"{text}\n")
