"""Search for the process that holds a UDP address."""

import os
import socket
import subprocess
import sys

import pytest

from pgm.net.sockets.holder import find_holder

BIND = """
import socket, sys
sock = socket.socket({family}, socket.SOCK_DGRAM)
sock.bind(({address!r}, 0))
print(sock.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("family", "bound", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.9"),
        (socket.AF_INET6, "::1", "::1"),
    ],
)
def test_holder_of_another_process_is_named_with_its_node(family, bound, asked):
    script = BIND.format(family=int(family), address=bound)
    command = [sys.executable, "-c", script, "pgm", "run", "tree.toml", "--node", "exchange"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        holder = find_holder(asked, port)
        assert holder is not None
        assert holder.pid == process.pid
        assert sys.executable in holder.command
        assert holder.node == "exchange"
        assert holder.text.startswith(f"another process: process {process.pid} (node exchange), ")
        process.communicate()
    assert find_holder(asked, port) is None


def test_holder_this_process_is_called_so():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        holder = find_holder("127.0.0.1", own.getsockname()[1])
        assert holder is not None
        assert holder.text == f"this process, {os.getpid()}"


def test_holder_without_proc_is_unknown(tmp_path):
    assert find_holder("127.0.0.1", 1, proc=tmp_path) is None
