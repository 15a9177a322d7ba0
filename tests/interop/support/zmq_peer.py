"""PUB or SUB socket of libzmq on an `epgm://` address, with messages as lines on input and output.

The system's interpreter runs this module, because its libzmq has PGM compiled in. A line is a message: its parts in
base64 with spaces between them. A receiver takes `+PREFIX` and `-PREFIX`, in base64 too, to subscribe and unsubscribe.

    zmq_peer.py pub epgm://10.1.0.1;239.192.1.1:5555 RATE=40000 < lines     until SIGTERM, also when its input has ended
    zmq_peer.py sub epgm://10.1.0.2;239.192.1.1:5555 RATE=40000 RZ8=        until SIGTERM
"""

from __future__ import annotations

import base64
import os
import signal
import sys

import zmq

_CHUNK = 1 << 16
_TAKEN_AT_ONCE = 1000  # messages between two polls of standard input


def settings(words: list[str]) -> dict[str, int]:
    """Return socket options by name, written as in RATE=40000."""
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def publish(socket: zmq.Socket) -> None:
    """Publish every line, then serve repairs until the end."""
    for line in sys.stdin.buffer:
        socket.send_multipart([base64.b64decode(part) for part in line.rstrip(b"\n").split(b" ")])
    signal.pause()


def obey(socket: zmq.Socket, line: bytes) -> None:
    """Subscribe or unsubscribe as a line asks."""
    option = zmq.SUBSCRIBE if line[:1] == b"+" else zmq.UNSUBSCRIBE
    socket.setsockopt(option, base64.b64decode(line[1:]))


def subscribe(socket: zmq.Socket) -> None:
    """Print every message; the first line of standard input starts the subscription."""
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(0, zmq.POLLIN)
    rest = b""
    while True:
        ready = dict(poller.poll())
        if 0 in ready:
            chunk = os.read(0, _CHUNK)
            if not chunk:
                poller.unregister(0)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                obey(socket, line)
                print("obeyed", file=sys.stderr, flush=True)
        if socket in ready:
            for _ in range(_TAKEN_AT_ONCE):
                try:
                    parts = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                sys.stdout.buffer.write(b" ".join(base64.b64encode(part) for part in parts) + b"\n")
            sys.stdout.buffer.flush()


def main(verb: str, url: str, *words: str) -> None:
    """Open the socket and run as publisher or subscriber."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    socket = zmq.Context().socket(zmq.PUB if verb == "pub" else zmq.SUB)
    for name, value in {"SNDHWM": 0, "RCVHWM": 0, **settings(list(words))}.items():
        socket.setsockopt(getattr(zmq, name), value)
    if verb == "pub":
        socket.bind(url)
        publish(socket)
    else:
        socket.connect(url)
        subscribe(socket)


if __name__ == "__main__":
    main(*sys.argv[1:])
