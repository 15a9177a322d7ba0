"""Panel of the findings of `pgm fleet tables` on the page of the monitor."""

from __future__ import annotations

import html
import json
import time
from pathlib import Path
from typing import Any

import attrs

from pgm.figures.minutes import FINDINGS_FILE

_MOST_OCTETS = 16 << 20
_MOST_SHOWN = 20
_OLD_S = 900.0  # age of the findings from which on the job seems to have ended


@attrs.frozen
class FindingsPanel:
    """Findings in a folder of tables, which a job keeps."""

    folder: Path

    def parts(self) -> list[str]:
        """Return the panel as HTML: the newest changes, each with its evidence."""
        head = "<h2>changes of regime</h2>"
        file = self.folder / FINDINGS_FILE
        try:
            with file.open("rb") as stream:
                value = json.loads(stream.read(_MOST_OCTETS))
            age_s = time.time() - file.stat().st_mtime
            lines = [_line(finding) for finding in value["findings"][:_MOST_SHOWN]]
            series, more = int(value["series"]), len(value["findings"]) - len(lines)
        except FileNotFoundError:
            return [head, f"<p class=note>{html.escape(str(self.folder))} has no findings yet: pgm fleet tables</p>"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            return [head, f"<p class=bad>{html.escape(str(file))} cannot be read: {html.escape(str(error))}</p>"]
        found = f"<ul class=changes>{''.join(lines)}</ul>" if lines else "<p class=note>no link has changed</p>"
        note = f"{series:,} series of a week at most, looked at {_age(age_s)} ago"
        note += f"; {more:,} earlier changes are in {FINDINGS_FILE}" if more > 0 else ""
        kind = "bad" if age_s > _OLD_S else "note"
        return [head, found, f"<p class={kind}>{html.escape(note)}</p>"]


def _line(finding: dict[str, Any]) -> str:
    """Return a change: what changed, and why it is no chance."""
    is_worse = float(finding["after"]) > float(finding["before"])
    link, _, rest = str(finding["text"]).partition(": ")
    change, _, evidence = rest.partition(", by ")
    return (
        f'<li class="{"worse" if is_worse else "better"}"><b>{html.escape(link)}</b> {html.escape(change)} '
        f"<span>{html.escape(evidence)}</span></li>"
    )


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # fmt: skip
