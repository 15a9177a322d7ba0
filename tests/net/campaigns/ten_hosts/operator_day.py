"""Day of an operator: every command with --fleet, pictures of the page, hostile clients, and hosts that fall silent."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.net.campaigns.ten_hosts import hostile
from tests.net.campaigns.ten_hosts.forks import Command
from tests.net.campaigns.ten_hosts.losses import plant_links
from tests.net.campaigns.ten_hosts.network import AGENT_PORT, NODES, Hosts, address
from tests.net.campaigns.ten_hosts.planting import Planter, until_all_had

_WIDTHS = {1280: 1400, 400: 2600}  # pixels of a picture: its width and height
_RECEIVERS = tuple(name for name in NODES if name.startswith(("desk", "hall", "far")))
_HOSTILE_S = 20.0


def _asked(ten: Hosts, *words: str, code: int = 0) -> Command:
    """Run a command on the whole fleet, print it with its output, and check its end."""
    done = ten.operate(words[0], *words[1:], "--fleet")
    print(f"$ pgm {' '.join(words)} --fleet\n{done.out}{done.log}exit status {done.code}\n", flush=True)
    assert done.code == code, (words, done.code)
    return done


def walk(ten: Hosts) -> None:
    """Run every command once, and check what it tells of the ten hosts."""
    file = str(ten.file)
    told = json.loads(_asked(ten, "status", file, "--json").out)
    assert {row["node"]: row["host"] for row in told["nodes"]} == {name: name for name in NODES}
    _asked(ten, "status", file)
    rows = [json.loads(line) for line in _asked(ten, "top", file, "--json").out.splitlines()]
    assert {row["node"] for row in rows} == set(NODES)
    assert "rate = 600kbit/s" in _asked(ten, "ctl", file, "--node", "source", "set", "rate=600kbit/s").out
    _asked(ten, "ctl", file, "--node", "source", "set", "rate=start")
    _asked(ten, "ctl", file, "--node", "desk-*", "get", "rxw_bytes")
    _asked(ten, "doctor", file)
    worst = json.loads(_asked(ten, "explain", "--worst", "10", "s", file, "--json").out)["troubles"]
    _asked(ten, "explain", "--worst", "10", "s", file)
    _asked(ten, "explain", "s", str(worst[0]["first"]), file)


def pictures(ten: Hosts, folder: Path) -> list[Path]:
    """Take pictures of the monitor's pages in a browser on the operator's host."""
    monitor = ten.begin("monitor", str(ten.file), "--fleet", "--agents-token-file", str(ten.folder / "token"), "--json")
    monitor.until(lambda: monitor.out)
    url = json.loads(monitor.out.splitlines()[0])["url"]
    pages = {
        "overview": "/",
        "node": f"/node?topology=ten&name={_RECEIVERS[1]}",
        "worst": "/explain?topology=ten",
    }
    [link] = _links(ten, f"{url}/explain?topology=ten")[:1]
    pages["packet"] = link
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, path in pages.items():
        for width, height in _WIDTHS.items():
            file = folder / f"{name}-{width}.png"
            _picture(ten, f"{url}{path}", file, f"{width},{height}")
            found.append(file)
    monitor.signal(signal.SIGTERM)
    return found


def _links(ten: Hosts, url: str) -> list[str]:
    script = (
        "import html, re, sys, urllib.request as r; page = r.urlopen(sys.argv[1]).read().decode();"
        "print(*(html.unescape(one) for one in re.findall('href=\"(/explain[^\"]*sqn[^\"]*)\"', page)), sep='\\n')"
    )
    return ten.operator.run(sys.executable, "-c", script, url).split()


def _picture(ten: Hosts, url: str, file: Path, size: str) -> None:
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
    words += [f"--user-data-dir={ten.folder / 'browser'}", "--virtual-time-budget=3000", f"--screenshot={file}", url]
    subprocess.run(ten.operator.wrap(words), check=True, capture_output=True, timeout=300)


def delivered(ten: Hosts) -> dict[str, tuple[int, int]]:
    """Return the pids and losses of all receivers, once all have what the source has sent."""
    until_all_had(ten, ten.lead())
    rows = {name: ten.status(name) for name in _RECEIVERS}
    return {name: (row["pid"], row["counters"].get("lost_sqns", 0)) for name, row in rows.items()}


def withstand(ten: Hosts) -> dict[str, Any]:
    """Let hostile clients ask two agents while data flow. Return what the agents answered."""
    before = delivered(ten)
    clients = [
        ten.forks.start(ten.operator, [where, str(AGENT_PORT), str(_HOSTILE_S)], {}, hostile.__name__)
        for where in (address("source", "core"), address("relay-a", "core"))
    ]
    first = ten.lead()
    for client in clients:
        assert client.wait() == 0, client.log
    told = [json.loads(client.out) for client in clients]
    for one in told:
        assert "200" not in {status for way, row in one["told"].items() if "token" in way for status in row}, one
    assert ten.lead() > first
    assert (after := delivered(ten)) == before, (before, after)
    _asked(ten, "status", str(ten.file))  # all agents answer
    return {"clients": told, "receivers": before}


def fall_silent(ten: Hosts) -> None:
    """Stop an agent, kill another, and cut a third off. The fleet names all three, and no receiver notices."""
    before = delivered(ten)
    stopped, killed, cut = "desk-1", "keeper-b", "desk-4"
    ten.agents[stopped].signal(signal.SIGSTOP)
    ten.agents[killed].end()
    way = f"oifname floor-b ip daddr {address(cut, 'floor-b')} drop"
    chain = "add table inet cut; add chain inet cut way { type filter hook forward priority 0; }"
    ten.routers["router-2"].run("nft", f"{chain}; add rule inet cut way {way}")
    log = _asked(ten, "status", str(ten.file), code=1).log
    for name in (stopped, killed, cut):
        assert address(name, "floor-a" if name == stopped else "floor-b") in log, name
    assert log.count("does not answer") == 3, log
    _asked(ten, "explain", "--worst", "3", "s", str(ten.file))
    assert (after := delivered(ten)) == before, (before, after)
    ten.agents[stopped].signal(signal.SIGCONT)
    ten.start_agent(killed).line_with("ready")
    ten.routers["router-2"].run("nft", "flush", "ruleset")
    _asked(ten, "status", str(ten.file))
    assert (after := delivered(ten)) == before, (before, after)


def spend(ten: Hosts, folder: Path) -> None:
    """Spend the day."""
    plant_links(ten, Planter(ten), 12, random.Random(1))
    walk(ten)
    print(*pictures(ten, folder), sep="\n")
    print(json.dumps(withstand(ten)))
    fall_silent(ten)
