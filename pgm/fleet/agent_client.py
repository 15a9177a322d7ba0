"""Client of agents: one bounded request over HTTP/1.1, with or without TLS.

An agent may be slow, wrong or hostile: each request has a time, an answer has a size, and every failure is a `ProcessError`
with the reason.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any

import attrs
import h11
import trio

from pgm.errors import ProcessError, UsageError
from pgm.topology.node_plan import Address

TIMEOUT_S = 2.0  # of a request with its connection; `pgm status` waits as long for a node of this host
MOST_OCTETS = 1 << 26  # of an answer: 1,024 nodes with 64 KiB each
_CHUNK = 1 << 16
_DENIED = 401
_REFUSED = 400
_CONTROLS = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\n)"
    r"|\\u(?:00[01][0-9a-fA-F]|007[fF]|00[89][0-9a-fA-F]|202[89a-eA-E]|206[6-9]|[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\[bfr]|[\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)
_START = "run pgm agent FILE on that host, and let TCP to its port pass"


@attrs.frozen
class AgentClient:
    """Requests to agents at one port. `token` and `tls` are those of the agents."""

    port: int
    token: str | None = attrs.field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    timeout_s: float = TIMEOUT_S

    async def get(self, address: Address, path: str) -> dict[str, Any]:
        """Return the JSON object at a path. Raises `ProcessError` with the reason."""
        return await self._request(address, "GET", path, b"")

    async def post(self, address: Address, path: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object that answers another one.

        Raises `ProcessError` with the reason, and `UsageError` if the agent or a node refuses the request.
        """
        return await self._request(address, "POST", path, json.dumps(value).encode())

    async def _request(self, address: Address, method: str, path: str, body: bytes) -> dict[str, Any]:
        where = f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"
        try:
            with trio.fail_after(self.timeout_s):
                stream = await self._connected(address)
                async with stream:
                    status, octets = await _exchanged(stream, self._asked(method, path, where, body), body)
        except trio.TooSlowError:
            raise ProcessError(f"{where}: no answer within {self.timeout_s:g} s", remedy=_START) from None
        except OSError as error:
            raise ProcessError(f"{where}: {_reason_of(error)}", remedy=_START) from error
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            raise _broken(where, error, has_tls=self.tls is not None) from error
        return _object_of(where, status, octets)

    async def _connected(self, address: Address) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(address, self.port)
        if self.tls is None:
            return stream
        secure = trio.SSLStream(stream, self.tls, server_hostname=address, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secure

    def _asked(self, method: str, path: str, where: str, body: bytes) -> h11.Request:
        headers = [("host", where), ("connection", "close"), ("content-length", str(len(body)))]
        if self.token is not None:
            headers.append(("authorization", f"Bearer {self.token}"))
        return h11.Request(method=method, target=path, headers=headers)


async def _exchanged(stream: trio.abc.Stream, request: h11.Request, body: bytes) -> tuple[int, bytes]:
    """Send a request. Return the status and the octets of its answer."""
    connection = h11.Connection(h11.CLIENT)
    events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
    await stream.send_all(b"".join(filter(None, map(connection.send, events))))
    status, octets = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_CHUNK)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            octets += event.data
            if len(octets) > MOST_OCTETS:
                raise h11.RemoteProtocolError(f"an answer of more than {MOST_OCTETS >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(octets)
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("the connection ended before the answer")


def _reason_of(error: OSError) -> str:
    """Return the reason of the kernel, which trio puts behind an error of its own."""
    cause = error.__cause__ or error
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)


def _broken(where: str, error: Exception, *, has_tls: bool) -> ProcessError:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = "give the certificate of its authority by --ca-file; the certificate must have the agent's IP address"
        return ProcessError(f"{where}: {cause.verify_message}", remedy=remedy)
    if isinstance(cause, ssl.SSLError):
        return ProcessError(f"{where}: no TLS: {cause.reason or cause}", remedy="start the agent with --tls-cert")
    remedy = "look at the log of the agent" if has_tls else "if the agent has --tls-cert, give --ca-file"
    return ProcessError(f"{where}: {cause or error}", remedy=remedy)


def _kept_untrusted(match: re.Match[str]) -> str:
    """Keep escaped backslashes and pairs of surrogates; all else would reach the terminal, or could not be written."""
    return match[0] if match[1] else "?"


def text_untrusted(octets: bytes) -> str:
    """Return the text of a JSON answer without control characters and lone surrogates, escaped or not."""
    return _CONTROLS.sub(_kept_untrusted, octets.decode("utf-8", "replace"))


def _object_of(where: str, status: int, octets: bytes) -> dict[str, Any]:
    if status == _DENIED:
        raise ProcessError(f"{where}: the agent refuses the token", remedy="give the agents' token by --token-file")
    try:
        value = json.loads(text_untrusted(octets))
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        problem = value["error"]
        message, remedy = str(problem.get("message")), str(problem.get("remedy", ""))
        raise (
            UsageError(message, remedy=remedy)
            if status == _REFUSED
            else ProcessError(f"{where}: {message}", remedy=remedy)
        )
    if status != 200 or not isinstance(value, dict):
        raise ProcessError(
            f"{where}: no answer of an agent (status {status})",
            remedy="check that `port` of [fleet] is the agents' port",
        )
    return value
