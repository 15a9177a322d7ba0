"""Mutual TLS of the monitor: real HTTPS over loopback, in one process."""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import pytest
import trio
from cryptography import x509
from hypercorn.trio import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deploy.monitor.http_service import Resources, application
from deploy.monitor.monitor import Access, _config_of, listen
from deploy.terminal.fleet_options import FleetAccess
from pgm.errors import ProcessError
from pgm.fleet.nodes import NodeWatch
from pgm.mutual_tls.contexts import client_context, peer_of
from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.members import current_peer
from pgm.mutual_tls.names import SHARED_NAME, name_of_keys
from tests.net.support.pages import blocks, page
from tests.unit.mutual_tls.parties import Forest, certificate, forest, keys, plain_client

TOKEN = "a-token-of-many-characters"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forest:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("pgm.mutual_tls.identity._LOOK_S", 0.0)
    return forest(tmp_path)


async def _named(_: Request) -> PlainTextResponse:
    return PlainTextResponse(str(current_peer()))


@asynccontextmanager
async def serving(access: Access) -> AsyncIterator[int]:
    """Serve the monitor with two resources more, /peer and /change. Yield its port."""
    more = [Route("/peer", _named, methods=["GET"]), Route("/change", _named, methods=["POST"])]
    end = trio.Event()
    with listen("127.0.0.1", 0) as sock:
        config = _config_of(access)
        config.bind = [f"fd://{os.dup(sock.fileno())}"]
        config.loglevel = "CRITICAL"
        config.graceful_timeout = 0.1
        serving = application(NodeWatch(), access.token, lambda _: Resources(more), access.gate)
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: serve(serving, config, shutdown_trigger=end.wait, task_status=task_status)
            )  # type: ignore[arg-type]
            yield sock.getsockname()[1]
            end.set()


def ask(
    port: int, context: ssl.SSLContext, path: str = "/peer", method: str = "GET", **headers: str
) -> tuple[int, str]:
    """Send one request over a connection of its own."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    with closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


async def asked(*args: object, **headers: str) -> tuple[int, str]:
    return await trio.to_thread.run_sync(lambda: ask(*args, **headers))  # type: ignore[arg-type]


async def test_monitor_answers_permitted_nodes_alone(tree: Forest, tmp_path: Path) -> None:
    gate = PeerGate(tree.identity("exchange"), ("desk-1",))
    desk, other = client_context(tree.identity("desk-1"), ("exchange",)), client_context(tree.identity("desk-2"))
    odd = [
        None,
        certificate(keys(9), [x509.DNSName(name_of_keys(keys(3).public.id))]),
        certificate(keys(3), [x509.DNSName(SHARED_NAME)]),
        certificate(keys(4), [x509.DNSName(name_of_keys(keys(3).public.id))]),
    ]
    async with serving(Access(gate=gate)) as port:
        assert await asked(port, desk) == (200, f"desk-1 (keys {keys(3).public.id})")
        assert (await asked(port, desk, "/change", "POST"))[0] == 200
        strangers = [other, *(plain_client(one, tmp_path) for one in odd)]
        for stranger in strangers:
            for path in ("/peer", "/healthz"):
                with pytest.raises((ssl.SSLError, http.client.RemoteDisconnected, ConnectionError)):
                    await asked(port, stranger, path)
        metrics = (await asked(port, desk, "/metrics"))[1]
        assert 'pgm_monitor_refused_total{reason="not-permitted"} 2.0' in metrics
        assert 'pgm_monitor_refused_total{reason="unnamed"} 2.0' in metrics
        assert 'pgm_monitor_refused_total{reason="handshake"} 6.0' in metrics


async def test_monitor_takes_tokens_beside_nodes(tree: Forest, tmp_path: Path) -> None:
    """A browser has no keys. Nodes that --client does not name read, and change nothing."""
    gate = PeerGate(tree.identity("exchange"))
    browser, desk = plain_client(None, tmp_path), client_context(tree.identity("desk-1"))
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with serving(Access(token=TOKEN, gate=gate)) as port:
        assert (await asked(port, browser))[0] == 401
        assert (await asked(port, browser, "/healthz")) == (200, "ok\n")
        assert await asked(port, browser, **bearer) == (200, "None")
        assert (await asked(port, browser, "/change", "POST", **bearer))[0] == 200
        assert (await asked(port, desk))[0] == 200
        assert (await asked(port, desk, "/change", "POST"))[0] == 401
        assert (await asked(port, desk, "/change", "POST", **bearer))[0] == 200
    async with serving(Access(gate=gate)) as port:
        assert (await asked(port, desk, "/change", "POST"))[0] == 403


async def test_open_connection_ends_with_revoked_keys(tree: Forest) -> None:
    gate = PeerGate(tree.identity("exchange"))
    async with serving(Access(gate=gate)) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        context = client_context(tree.identity("desk-1"), ("exchange",))
        async with trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True) as secure:
            for body in (f"desk-1 (keys {keys(3).public.id})", "this node may not ask"):
                await secure.send_all(b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n")
                got = b""
                while body.encode() not in got:
                    got += (more := await secure.receive_some(65536))
                    assert more, got
                tree.revoked[keys(3).public.id] = "stolen"
                tree.write()
    assert gate.refusals.counts["revoked"] == 1


def test_client_knows_its_server(tree: Forest) -> None:
    """`peer_of` serves programs without tasks, such as `http.client`."""

    async def main() -> None:
        async with serving(Access(gate=PeerGate(tree.identity("exchange")))) as port:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=10, context=client_context(tree.identity("desk-1"))
            )
            with closing(connection):
                await trio.to_thread.run_sync(connection.connect)
                assert isinstance(connection.sock, ssl.SSLSocket)
                assert str(peer_of(connection.sock)) == f"exchange (keys {keys(1).public.id})"
                assert current_peer() is None

    trio.run(main)


async def test_agent_client_asks_as_a_node(tree: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_KEY_DIR", str(tree.folder / "keys"))
    tree.private_file("desk-1", keys(3))
    async with serving(Access(gate=PeerGate(tree.identity("exchange"), ("desk-1",)))) as port:
        client = FleetAccess(identity="desk-1").watch(tree.file).client
        assert client.tls is not None
        asking = attrs.evolve(client, port=port, timeout_s=10.0)
        assert (await asking.get("127.0.0.1", "/status.json"))["nodes"] == []
        with pytest.raises(ProcessError):
            await attrs.evolve(asking, tls=client_context(tree.identity("desk-2"))).get("127.0.0.1", "/status.json")


async def test_program_of_the_monitoring_page_runs(
    tree: Forest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (block for block in blocks(page("guide/monitoring.md"), "python") if "client_context" in block)
    monkeypatch.setenv("PGM_KEY_DIR", str(tree.folder / "keys"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    tree.private_file("desk-1", keys(3))
    async with serving(Access(gate=PeerGate(tree.identity("exchange"), ("desk-*",)))) as port:
        program = program.replace("tree.toml", str(tree.file)).replace("10.0.0.10:9764", f"127.0.0.1:{port}")
        await trio.to_thread.run_sync(lambda: exec(program, {}))
    assert capsys.readouterr().out == "200\n"
