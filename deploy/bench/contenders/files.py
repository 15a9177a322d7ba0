"""Contenders of `pgm bench files`: `pgm send --file`, and uftp if installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

import attrs

from deploy.bench.lan import NET, SOURCE_ADDRESS, receiver_address
from pgm.errors import UsageError

GROUP, _PRIVATE = "239.192.98.1", "239.192.98.2"
_PACKET = 1472  # octets of a UDP datagram on a path with an MTU of 1500
_UFTP_BLOCK = 1420  # octets, for packets as long as pgm's; the default of uftp is 1300
_ACK_WINDOW = 4096  # packets: no more than the receivers' buffers hold
_TREE = """\
version = 1
name = "files"
[streams.files]
data_port = 7500
rate = "20Gbit/s"
flow = "acked"
[parameters]
max_tpdu = "{packet}B"
ack_window = {window}
txw_bytes = "32MiB"
fin_quiet_ivl = "100ms"
file_digest = "{digest}"
so_rcvbuf = "{buffer}B"
so_sndbuf = "{buffer}B"
[segments.lan]
group = "{group}"
interface = "{net}.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "{source}"
streams = ["files"]
[nodes."desk-*"]
role = "receiver"
segment = "lan"
count = {count}
addresses = "{first}-{last}"
parents = ["source"]
"""


@attrs.frozen
class FileJob:
    """One transfer: a file, the folders for its copies, and the limits of senders."""

    file: Path
    folders: tuple[Path, ...]  # one empty folder for each receiver
    scratch: Path  # for other files that a contender needs
    buffer: int  # octets of each socket buffer
    rate: int = 0  # octets a second, for contenders without flow control

    def copy_of(self, number: int) -> Path:
        """Return the path of receiver `number`'s copy."""
        return self.folders[number] / self.file.name


class OursFiles:
    """`pgm send --file` to `pgm recv --into`, with blocks checked by a named digest."""

    is_ours = True
    needs_rate = False
    stays = False  # whether receivers run until they are stopped

    def __init__(self, digest_name: str, name: str) -> None:
        self.name = name
        self.title = f"pgm, {digest_name}"
        self._digest_name = digest_name

    def why_not(self) -> str:
        """Return "": pgm is always available."""
        return ""

    def _tree(self, job: FileJob) -> Path:
        return job.scratch / "tree.toml"

    def prepare(self, job: FileJob) -> None:
        """Write the topology."""
        count = len(job.folders)
        text = _TREE.format(
            digest=self._digest_name,
            packet=_PACKET,
            window=_ACK_WINDOW,
            buffer=job.buffer,
            group=GROUP,
            net=NET,
            source=SOURCE_ADDRESS,
            count=count,
            first=receiver_address(0),
            last=receiver_address(count - 1),
        )
        self._tree(job).write_text(text)

    def receiver(self, job: FileJob, number: int) -> list[str]:
        """Return the `pgm recv` command."""
        return self._pgm("recv", job, f"desk-{number + 1}", "--into", str(job.folders[number]))

    def sender(self, job: FileJob) -> list[str]:
        """Return the `pgm send` command."""
        return self._pgm("send", job, "source", "--file", str(job.file), "--receivers", str(len(job.folders)))

    def _pgm(self, verb: str, job: FileJob, node: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "deploy", verb, str(self._tree(job)), "--node", node, "--json", *more]


class Uftp:
    """uftp and uftpd, without encryption, at a fixed rate."""

    name = "uftp"
    title = "uftp"
    is_ours = False
    needs_rate = True
    stays = True

    def why_not(self) -> str:
        """Return the reason why uftp cannot run here, or ""."""
        missing = [tool for tool in ("uftp", "uftpd") if shutil.which(tool) is None]
        return f"{', '.join(missing)} not found: apt-get install uftp" if missing else ""

    def prepare(self, job: FileJob) -> None:
        """Make a temporary folder for each receiver, in which uftpd assembles files."""
        for number in range(len(job.folders)):
            self._temporary(job, number).mkdir(exist_ok=True)

    @staticmethod
    def _temporary(job: FileJob, number: int) -> Path:
        return job.scratch / f"uftp-{number}"

    @staticmethod
    def _ident(number: int) -> str:
        return f"0x{number + 1:08X}"

    def receiver(self, job: FileJob, number: int) -> list[str]:
        """Return the `uftpd` command: in the foreground, with the largest cache allowed."""
        into, temporary = str(job.folders[number]), str(self._temporary(job, number))
        where = ["-I", receiver_address(number), "-M", GROUP, "-U", self._ident(number), "-B", str(job.buffer)]
        return ["uftpd", "-d", "-q", *where, "-c", str(20 << 20), "-D", into, "-T", temporary]

    def sender(self, job: FileJob) -> list[str]:
        """Return the `uftp` command."""
        members = ",".join(self._ident(number) for number in range(len(job.folders)))
        where = ["-I", SOURCE_ADDRESS, "-M", GROUP, "-P", _PRIVATE, "-B", str(job.buffer), "-b", str(_UFTP_BLOCK)]
        return ["uftp", *where, "-R", str(job.rate * 8 // 1000), "-H", members, str(job.file)]


FileContender: TypeAlias = OursFiles | Uftp
FILE_CONTENDERS: tuple[FileContender, ...] = (
    OursFiles("crc32", "ours-files"),
    OursFiles("sha256", "ours-files-sha256"),
    Uftp(),
)


def select_file_contenders(names: Sequence[str]) -> list[FileContender]:
    """Return the contenders that send files, or the named ones. Raises `UsageError` if no name is known."""
    contenders = [contender for contender in FILE_CONTENDERS if not names or contender.name in names]
    if not contenders:
        known = [contender.name for contender in FILE_CONTENDERS]
        close = get_close_matches(names[0], known, 1)
        raise UsageError(
            f"none of {', '.join(names)} takes part in files", remedy=f"choose from {', '.join(close or known)}"
        )
    return contenders
