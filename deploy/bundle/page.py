"""Page inside a bundle: what is what, what is missing, and how to read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.bundle.archive_file import Member
from deploy.bundle.contents import PARTS
from deploy.bundle.redaction import REMOVED

_USE = """\
## How to read it

```sh
pgm check topology.toml
PGM_RUNTIME_DIR=$PWD/flight pgm explain --worst 10
pgm report telemetry
PGM_RUNTIME_DIR=$PWD/fleet/flight pgm explain --worst 10   # with --fleet
jq -c '{node, role, counters}' status.jsonl
```
"""


def readme(topology: str, members: Sequence[Member], left_out: Iterable[tuple[str, str]]) -> str:
    """Return the page of a bundle. `left_out` has parts with the reasons why they are missing."""
    names = [member.name for member in members]
    lines = [
        f"# Bundle of the tree {topology or '(without a readable name)'}",
        "",
        f"The archive was made by `pgm bundle`. It has no messages of streams. Secrets and texts that look like secrets are {REMOVED}.",
        "Addresses, names of hosts and nodes, and lines of logs are in it: look at them before you send it to others.",
        "",
        "| file | what it is |",
        "|---|---|",
    ]
    lines += [
        f"| `{part.name}` | {part.meaning} |" for part in PARTS if any(one.startswith(part.name) for one in names)
    ]
    lines += [
        "| `contents.json` | Version of pgm, digest of the original topology file, all files, and what is left out. |",
        "",
    ]
    lines += [_USE]
    missing = list(left_out)
    if missing:
        lines += ["## Left out", ""]
        lines += [f"- `{part}`: {reason}" for part, reason in missing]
    return "\n".join(lines) + "\n"
