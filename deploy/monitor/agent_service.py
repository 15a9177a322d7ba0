"""Resources of an agent, beside the pages of the monitor: state of the host, and settings of its nodes."""

from __future__ import annotations

import json
import secrets
import socket
import time
from pathlib import Path
from typing import Any

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.doctor.command import nodes_to_check
from deploy.doctor.machine import check_machine
from deploy.doctor.network import check_nodes
from deploy.doctor.view import rows_of
from deploy.monitor.flight_answers import query_of, rings_as_json
from deploy.monitor.http_service import PageService, Resources
from deploy.netcheck.service import ProbeService
from deploy.terminal.version import VERSION
from pgm.errors import PgmError, TopologyError, UsageError
from pgm.fleet.apply_host import HostChange
from pgm.fleet.fingerprint import Fingerprint, fingerprint_of
from pgm.fleet.nodes import NodeRecord, NodeState
from pgm.fleet.paths import APPLY_PATH, CONTROL_PATH, DOCTOR_PATH, FLIGHT_PATH, NETCHECK_PATH, STATE_PATH
from pgm.net.control.control_socket import ask_control, control_path
from pgm.net.control.reload import MOST_FILE_OCTETS

_DOCTOR_FRESH_S = 10.0  # checks read the kernel and open sockets; a fleet asks rarely
_MOST_STEP = 2 * MOST_FILE_OCTETS  # octets: a topology file as JSON, and the names of nodes
_MOST_BODY = 8192  # octets: a request to a node has 4096 at most
_MOST_PEERS_BODY = 1 << 18  # octets: segments and addresses of all hosts
_SETTING = ("get", "set", "release")  # requests of pgm ctl; a node has others, for pgm apply on its own host
_GIVE_TOKEN = "start the agent with --token-file"


@attrs.define
class AgentService:
    """Resources of the agent of one topology file. Without a token the agent changes nothing."""

    pages: PageService
    file: Path
    topology: str
    may_change: bool
    change: HostChange | None = None  # of the topology file; None: it may not be replaced
    _id: str = attrs.field(init=False, factory=lambda: secrets.token_hex(8))
    _doctoring: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _excerpting: trio.Lock = attrs.field(init=False, factory=trio.Lock)  # of recorders: one request at a time
    _found: tuple[float, list[dict[str, Any]]] | None = attrs.field(init=False, default=None)
    _reading: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _known: tuple[int, Fingerprint] | None = attrs.field(init=False, default=None)
    _probes: ProbeService = attrs.field(
        init=False, default=attrs.Factory(lambda self: ProbeService(self.file), takes_self=True)
    )

    def resources(self) -> Resources:
        """Return the resources. A further resource of agents is one more line."""
        routes = [
            Route(STATE_PATH, self.state, methods=["GET"]),
            Route(CONTROL_PATH, self.control, methods=["POST"]),
            Route(DOCTOR_PATH, self.doctor, methods=["GET"]),
            Route(FLIGHT_PATH, self.flight, methods=["GET"]),
            Route(NETCHECK_PATH, self.netcheck, methods=["POST"]),
            Route(APPLY_PATH, self.apply, methods=["POST"]),
        ]
        return Resources(routes, [self._probes.run])

    async def state(self, request: Request) -> Response:
        """Return the state of the host: its file, and its nodes with their snapshots."""
        view = await self.pages.view()
        here = (node for node in view.nodes if node.state is not NodeState.ELSEWHERE)
        value = {
            "agent": self._id,
            "host": socket.gethostname(),
            "version": VERSION,
            "time_s": time.time(),
            "topology": {"name": self.topology, "file": str(self.file), **await self._fingerprint()},
            "nodes": [_row(node, view.at_s) for node in here],
            "left_out": view.left_out,
        }
        return JSONResponse(value)

    async def _fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the file as it is now; `problem` instead if the file cannot be read."""
        async with self._reading:
            try:
                changed_ns = self.file.stat().st_mtime_ns
                if self._known is None or self._known[0] != changed_ns:
                    self._known = changed_ns, await trio.to_thread.run_sync(fingerprint_of, self.file)
            except (PgmError, OSError) as error:
                return {"problem": str(error).splitlines()[0]}
            return self._known[1].row()

    async def doctor(self, request: Request) -> Response:
        """Return the findings of `pgm doctor` for the nodes of this host, at most `_DOCTOR_FRESH_S` old."""
        async with self._doctoring:
            if self._found is None or time.monotonic() - self._found[0] > _DOCTOR_FRESH_S:
                try:
                    rows = await trio.to_thread.run_sync(_checked, self.file, abandon_on_cancel=True)
                except PgmError as error:
                    return _refusal(502, error.message, error.remedy)
                self._found = time.monotonic(), rows
            return JSONResponse({"checks": self._found[1]})

    async def flight(self, request: Request) -> Response:
        """Return the flight recorders of the nodes of this host: `packet=STREAM:SQN`, repeated, or `worst=N`."""
        try:
            query = query_of(request.query_params.getlist("packet"), request.query_params.get("worst"))
            async with self._excerpting:
                rings = await trio.to_thread.run_sync(rings_as_json, self.topology, query, abandon_on_cancel=True)
            return Response(rings, media_type="application/json")
        except UsageError as error:
            return _refusal(400, error.message, error.remedy)
        except PgmError as error:
            return _refusal(502, error.message, error.remedy)

    async def control(self, request: Request) -> Response:
        """Pass a request of `pgm ctl` to the control socket of a node, and return its answer."""
        if not self.may_change:
            return _refusal(403, "an agent without --token-file changes nothing", _GIVE_TOKEN)
        try:
            wanted = await _body_of(request, _MOST_BODY)
            name, asked = wanted.get("node"), wanted.get("request")
            if not isinstance(name, str) or not isinstance(asked, dict):
                raise UsageError(
                    "`node` or `request` is missing", remedy='send {"node": NAME, "request": {"do": "get"}}'
                )
            if asked.get("do") not in _SETTING:
                raise UsageError("no request that an agent passes on", remedy=f"the requests are {', '.join(_SETTING)}")
            if not any(node.name == name for node in (await self.pages.view()).nodes):
                raise UsageError(f"no node {name[:80]!r} runs on this host", remedy="see pgm status FILE --fleet")
            path = control_path(self.topology, name)
            return JSONResponse(await trio.to_thread.run_sync(ask_control, path, asked))
        except UsageError as error:
            return _refusal(400, error.message, error.remedy)
        except PgmError as error:
            return _refusal(502, error.message, error.remedy)

    async def netcheck(self, request: Request) -> Response:
        """Send and hear probes of `pgm netcheck`."""
        if not self.may_change:
            return _refusal(403, "an agent without --token-file sends no probes", _GIVE_TOKEN)
        try:
            return JSONResponse(await self._probes.answer(await _body_of(request, _MOST_PEERS_BODY)))
        except UsageError as error:
            return _refusal(400, error.message, error.remedy)
        except PgmError as error:
            return _refusal(502, error.message, error.remedy)

    async def apply(self, request: Request) -> Response:
        """Take a step of `pgm apply --fleet`, and return what was done."""
        if not self.may_change:
            return _refusal(403, "an agent without --token-file changes nothing", _GIVE_TOKEN)
        if self.change is None:
            return _refusal(403, "this agent does not replace its topology file", "start the agent with --apply")
        try:
            step = await _body_of(request, _MOST_STEP)
            answer = await trio.to_thread.run_sync(self.change.answer, step)
            if step.get("do") in ("finish", "back"):
                await self.pages.expect(str(self.file))
            return JSONResponse(answer)
        except (UsageError, TopologyError) as error:
            return _refusal(400, error.message, error.remedy)
        except PgmError as error:
            return _refusal(502, error.message, error.remedy)


def _checked(file: Path) -> list[dict[str, Any]]:
    checked = nodes_to_check(file, ())
    return rows_of([*check_machine(checked.plans), *check_nodes(checked.plans, checked.uses)])


def _row(node: NodeRecord, now_s: float) -> dict[str, Any]:
    return {
        "topology": node.topology,
        "node": node.name,
        "role": node.role,
        "state": node.state.name.lower(),
        "for_s": round(now_s - node.since_s, 3),
        "snapshot": node.snapshot,
    }


async def _body_of(request: Request, most: int) -> dict[str, Any]:
    """Return the JSON object of a request of at most `most` octets. Raises `UsageError`."""
    octets = bytearray()
    async for chunk in request.stream():
        octets += chunk
        if len(octets) > most:
            raise UsageError(f"a request of more than {most} octets", remedy="ask for less at a time")
    try:
        value = json.loads(octets)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("the request is no JSON object", remedy='send {"node": NAME, "request": {"do": "get"}}')
    return value


def _refusal(status: int, message: str, remedy: str) -> Response:
    return JSONResponse({"error": {"message": message, "remedy": remedy}}, status)
