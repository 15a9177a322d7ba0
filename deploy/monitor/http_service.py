"""HTTP service of `pgm monitor`: its pages, access control and request limit."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import importlib.resources
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import attrs
import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deploy.monitor.history import SAMPLE_S, History
from deploy.monitor.html_page import one_node, overview, packet_page
from deploy.monitor.prometheus import Metrics
from deploy.status.explain_page import PacketPage, parts_untrusted
from deploy.status.recorders import gather_of
from pgm.errors import PgmError, UsageError
from pgm.fleet.nodes import TreeView, Watch
from pgm.fleet.watch import FleetWatch
from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.members import current_peer
from pgm.mutual_tls.refusals import Refusals

FRESH_S = 0.5  # age up to which one view answers all requests
MOST_REQUESTS = 32  # in progress at a time; further requests get status 503
_OPEN = "/healthz"  # needs no token, because the answer tells nothing of the tree
_READING = ("GET", "HEAD")
_FILES = {"monitor.css": "text/css", "monitor.js": "text/javascript"}
_HEADERS = {
    b"cache-control": b"no-store",
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class PageService:
    """Pages made of the nodes' snapshots. The nodes are asked once in `FRESH_S`, for any number of requests."""

    def __init__(
        self, nodes: Watch, refusals: Refusals | None = None, panel: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self._nodes = nodes
        self._panel = panel
        self.refusals = refusals
        self._gather = gather_of(nodes if isinstance(nodes, FleetWatch) else None)
        self._explaining = trio.Lock()  # recorders are large: one request at a time
        self._metrics = Metrics(refusals)
        self._history = History()
        self._lock = trio.Lock()
        self._view: TreeView | None = None
        self._writing = trio.Lock()
        self._written: tuple[TreeView, str, tuple[bytes, str]] | None = None

    async def view(self) -> TreeView:
        """Return all nodes, as they were at most `FRESH_S` ago."""
        async with self._lock:
            if self._view is None or time.monotonic() - self._view.at_s > FRESH_S:
                self._view = await trio.to_thread.run_sync(self._nodes.look, abandon_on_cancel=True)
            return self._view

    async def expect(self, file: str) -> None:
        """Show the nodes of a topology file as it is now."""
        async with self._lock:
            await trio.to_thread.run_sync(self._nodes.expect, file)
            self._view = None

    async def keep_history(self) -> None:
        """Take a sample of all nodes every `SAMPLE_S`, until cancelled."""
        while True:
            with contextlib.suppress(OSError, PgmError):  # the pages tell of it
                self._history.sample(await self.view())
            await trio.sleep(SAMPLE_S)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus, rendered once per view and format, since many nodes take seconds."""
        view, accept = await self.view(), request.headers.get("accept", "")
        async with self._writing:
            if self._written is None or self._written[0] is not view or self._written[1] != accept:
                self._written = view, accept, await trio.to_thread.run_sync(self._metrics.render, view, accept)
            text, content_type = self._written[2]
        return Response(text, headers={"content-type": content_type})

    async def status(self, request: Request) -> Response:
        """Return the snapshots of `pgm status --json`, as one object."""
        return JSONResponse((await self.view()).row())

    async def overview(self, request: Request) -> Response:
        """Return the page of all nodes."""
        view = await self.view()
        return HTMLResponse(overview(view, await trio.to_thread.run_sync(self._panel)))

    async def node(self, request: Request) -> Response:
        """Return the page of one node, or status 404."""
        view = await self.view()
        wanted = request.query_params.get("topology"), request.query_params.get("name")
        node = next((candidate for candidate in view.nodes if (candidate.topology, candidate.name) == wanted), None)
        if node is None:
            return PlainTextResponse("this node is unknown, or has been gone for too long\n", 404)
        return HTMLResponse(one_node(view, node, self._history))

    async def explain(self, request: Request) -> Response:
        """Return the page of one packet, or of the worst ones of a tree; status 400 or 404 with the reason."""
        view, query = await self.view(), request.query_params
        if not any(node.topology == query.get("topology") for node in view.nodes):
            return PlainTextResponse("this tree is unknown\n", 404)
        asked = PacketPage(*(query.get(key, "") for key in ("topology", "stream", "sqn", "at")))
        try:
            async with self._explaining:
                look = partial(parts_untrusted, asked, view, self._gather)
                parts = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
        except UsageError as error:
            return PlainTextResponse(f"{error.message}\n{error.remedy}\n", 400)
        return HTMLResponse(packet_page(asked, parts, view))

    async def file(self, request: Request) -> Response:
        """Return the style sheet or the script of the pages."""
        name = request.scope["path"].removeprefix("/")  # the routed path; `request.url` also depends on the Host header
        text = importlib.resources.files("deploy").joinpath("templates", name).read_text()
        return Response(text, media_type=_FILES[name])

    async def health(self, request: Request) -> Response:
        """Return that the monitor itself answers."""
        return PlainTextResponse("ok\n")


class AccessControl:
    """ASGI middleware that checks the token or the node of the client, limits requests and adds headers.

    A client sends `token` as `Authorization: Bearer TOKEN`. A browser sends it as the password of any user name, which
    serves to read only: a browser that knows the password would send it with changes by pages of others, too. With
    `gate` nodes need no token, except for changes by nodes that the gate does not name.
    """

    def __init__(self, app: ASGIApp, token: str | None, gate: PeerGate | None = None) -> None:
        self._app = app
        self._token = token
        self._gate = gate
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; web sockets are not served."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        if self._inside >= MOST_REQUESTS:
            busy = PlainTextResponse("too many requests at once\n", 503, {"retry-after": "1"})
            await busy(scope, receive, send)
            return
        if not self._admits(scope):
            await self._refusal()(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1

    def _admits(self, scope: Scope) -> bool:
        if self._gate is not None and (peer := current_peer()) is not None and self._gate.still_admits(peer):
            if scope["method"] in _READING or self._gate.names:
                return True
        elif scope["path"] == _OPEN or (self._token is None and self._gate is None):
            return True
        is_change = scope["method"] not in _READING
        return self._token is not None and _carries(self._token, Headers(scope=scope), is_change=is_change)

    def _refusal(self) -> Response:
        if self._token is None:
            return PlainTextResponse("this node may not ask: its keys are revoked, or --client does not name it\n", 403)
        challenge = {"www-authenticate": 'Bearer, Basic realm="pgm monitor: any user name, with the token as password"'}
        return PlainTextResponse("this page needs the token\n", 401, challenge)


def _with_headers(send: Send) -> Send:
    async def sending(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            assert isinstance(headers, list)
            headers.extend(_HEADERS.items())
        await send(message)

    return sending  # type: ignore[return-value]


def _carries(token: str, headers: Headers, *, is_change: bool) -> bool:
    kind, _, given = headers.get("authorization", "").partition(" ")
    given = given.strip()
    if kind.lower() == "basic" and not is_change:
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode(), token.encode())


Endpoint = Callable[[Request], Awaitable[Response]]


@attrs.frozen
class Resources:
    """Routes beside the pages, and tasks that run while the application does."""

    routes: Sequence[Route] = ()
    tasks: Sequence[Callable[[], Awaitable[None]]] = ()


def no_resources(_: PageService) -> Resources:
    """Return nothing beside the pages, as `pgm monitor` has it."""
    return Resources()


def application(
    nodes: Watch,
    token: str | None,
    more: Callable[[PageService], Resources] = no_resources,
    gate: PeerGate | None = None,
    panel: Callable[[], Sequence[str]] = tuple,
) -> ASGIApp:
    """Return the ASGI application: the pages, and what `more` makes of them.

    `gate` is that of the TLS connections. `panel` returns further parts of the first page as HTML.
    """
    pages = PageService(nodes, None if gate is None else gate.refusals, panel)
    endpoints: dict[str, Endpoint] = {
        "/": pages.overview,
        "/node": pages.node,
        "/explain": pages.explain,
        "/metrics": pages.metrics,
        "/status.json": pages.status,
        _OPEN: pages.health,
        **{f"/{name}": pages.file for name in _FILES},
    }
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()]
    resources = more(pages)

    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for task in (pages.keep_history, *resources.tasks):
                nursery.start_soon(task)
            yield
            nursery.cancel_scope.cancel()

    return Starlette(
        routes=[*routes, *resources.routes],
        lifespan=running,
        middleware=[Middleware(AccessControl, token=token, gate=gate)],
        exception_handlers={OSError: _no_room, PgmError: _no_room},
    )


async def _no_room(_: Request, error: Exception) -> Response:
    """Answer 503: too many files are open, or other users can change the folder of the nodes."""
    return PlainTextResponse(f"the nodes cannot be asked now: {error}\n", 503, {"retry-after": "1"})
