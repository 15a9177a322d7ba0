"""Hooks of the site: pages stay readable in the repository, and the site needs neither the repository nor other hosts."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")
_MERMAID = re.compile(r"^```mermaid\n.*?^```$", re.DOTALL | re.MULTILINE)
_DRAWN = {"reference/repair-states.md": "![The states of a missing packet](../pictures/repair-states.svg)"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to code by their text, and a Mermaid diagram by the picture of the same table.

    The site has no copy of the code. A browser would load the program that draws Mermaid from another host.
    """
    place = page.file.src_uri
    folder = posixpath.dirname(place)

    def stay(match: re.Match[str]) -> str:
        leaves = posixpath.normpath(posixpath.join(folder, match[2])).startswith("../")
        return match[1] if leaves else match[0]

    return _MERMAID.sub(lambda found: _DRAWN.get(place, found[0]), _LINK.sub(stay, markdown))
