"""Run of an image in namespaces of its own: `python -m tests.image.run ARCHIVE demo --messages 2000`.

The command does what an engine would: it unpacks the layers, and starts the entry point with the image's user and
environment, on a read-only root. Mounts, processes, network and host name are new. The run sees no file of the host, and has
loopback alone. Needs root, util-linux and iproute2.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

NEW = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork")
# The image has no umount. 2 is MNT_DETACH: nothing of the host is left.
_SCRIPT = """
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
for folder in tmp run dev; do mount -t tmpfs -o mode=1777 none $folder; done
mkdir dev/shm
mount -t tmpfs -o mode=1777 none dev/shm
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/urandom c 1 9
ip link set lo up
mount -o remount,bind,ro .
pivot_root . .
/usr/bin/python3 -IS -c 'import ctypes; assert ctypes.CDLL(None).umount2(b".", 2) == 0'
user=$2
shift 2
exec chroot --userspec="$user" --groups= / "$@"
"""


@attrs.frozen
class Image:
    """Content of an archive, after checks of all digests."""

    config: dict[str, Any]
    architecture: str
    layers: list[bytes]  # tar files

    def unpack(self, root: Path) -> None:
        """Write the files of all layers."""
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(root, filter="tar")

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line inside the image, with its environment."""
        return ["/usr/bin/env", "-i", *self.config["Env"], *self.config["Entrypoint"], *(words or self.config["Cmd"])]


def read_image(path: Path) -> Image:
    """Return the only image of an archive. Every digest and size must be right."""
    with tarfile.open(path) as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None, name
            return file.read()

        def blob(reference: dict[str, Any]) -> bytes:
            octets = content("blobs/" + reference["digest"].replace(":", "/"))
            assert len(octets) == reference["size"]
            assert f"sha256:{hashlib.sha256(octets).hexdigest()}" == reference["digest"]
            return octets

        assert json.loads(content("oci-layout"))["imageLayoutVersion"].startswith("1.")
        (one,) = json.loads(content("index.json"))["manifests"]
        manifest = json.loads(blob(one))
        described = json.loads(blob(manifest["config"]))
        layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert ids == described["rootfs"]["diff_ids"]
    assert not any(b"/pgm-image-" in layer for layer in layers), "paths of the folder of the build"
    return Image(described["config"], described["architecture"], layers)


def main(archive: Path, words: Sequence[str]) -> int:
    """Run the image. Return the exit code."""
    image = read_image(archive)
    with tempfile.TemporaryDirectory(prefix="pgm-image-") as folder:
        root = Path(folder) / "root"
        root.mkdir(mode=0o755)
        image.unpack(root)
        line = ["unshare", *NEW, "sh", "-c", _SCRIPT, "sh", str(root), image.config["User"], *image.command(words)]
        return subprocess.run(line, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
