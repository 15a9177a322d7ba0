"""The command `pgm manual`: a man page for each command."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import click

from deploy.terminal.options import FOLDER
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError

_EXAMPLES = re.compile(r"\x08\n(.*?)\n(?=\.PP|\.SH)", re.DOTALL)  # blocks that click leaves as they are


@click.command()
@click.option("--out", "output", type=FOLDER, default="man1", show_default=True, help="Folder of the pages.")
@click.pass_context
@command
def manual(context: click.Context, output: Path, as_json: bool) -> None:
    """Write a man page for pgm and for each of its commands.

    \b
    pgm manual --out /usr/local/share/man/man1 && man pgm-run

    Install the package by pip install click-man.
    """
    try:
        from click_man.core import generate_man_page
    except ImportError:
        raise UsageError("pgm manual needs click-man", remedy="pip install click-man") from None
    version = importlib.metadata.version("pgm-repair-network")
    root = context.find_root()
    group = root.command
    assert isinstance(group, click.Group)
    contexts = [root]
    for name in group.list_commands(root):
        found = group.get_command(root, name)
        assert found is not None
        contexts.append(click.Context(found, info_name=name, parent=root))
    output.mkdir(parents=True, exist_ok=True)
    written = []
    for one in contexts:
        file = output / f"{one.command_path.replace(' ', '-')}.1"
        file.write_text(_EXAMPLES.sub(r".nf\n\1\n.fi\n", generate_man_page(one, version)))
        written.append(str(file))
    if as_json:
        print_json({"written": written})
    else:
        warn(f"wrote {len(written)} pages to {output}; read one with: man -l {written[0]}")
