"""Folder tree with the files of Debian packages. No script of a package runs, so that root is not needed.

The packages are those of the mirror that apt of this machine has. apt chooses them as for an empty machine.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pgm.errors import ProcessError

PACKAGES = ("python3", "base-files", "coreutils", "dash", "libstdc++6", "tzdata")
_MERGED = ("bin", "sbin", "lib", "lib64")  # links to folders of the same name in /usr, as in Debian 12
_LEFT_OUT = (
    "./usr/share/doc/*/*[!t]",
    "./usr/share/man/*",
    "./usr/share/locale/*",
    "./usr/share/lintian/*",
    "./usr/share/info/*",
)
_USERS = """\
root:x:0:0:root:/root:/bin/sh
pgm:x:{user}:{user}:pgm:/tmp:/bin/sh
"""


def run(*command: str | Path, **options: object) -> str:
    """Run a program. Return its output. Raises `ProcessError` with what the program said."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    except OSError as error:
        raise ProcessError(f"{words[0]}: {error}", remedy="apt-get install apt dpkg tar") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ProcessError(f"{words[0]} failed: {said[-1] if said else done.returncode}", remedy="run: apt-get update")
    return str(done.stdout)


def fetch_packages(names: Sequence[str], folder: Path) -> list[Path]:
    """Download packages and all that they depend on. Return their files in the order of the names."""
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::status": "/dev/null",  # nothing is installed
        "Dir::Cache::archives": folder,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",  # whoever runs this
        "Debug::NoLocking": "true",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    run("apt-get", "-qq", *words, "--download-only", "-y", "install", *names)
    return sorted(folder.glob("*.deb"))


def unpack(packages: Sequence[Path], root: Path, user: int) -> None:
    """Unpack packages into a folder, without manual pages and translations, and add what their scripts would add."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    status = root / "var/lib/dpkg/status.d"  # read by scanners of images
    status.mkdir(parents=True)
    skipped = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
    for package in packages:
        (status / package.name.partition("_")[0]).write_text(run("dpkg-deb", "--field", package))
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacked:
            run("tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", root, *skipped, stdin=unpacked.stdout)
        if unpacked.returncode:
            raise ProcessError(f"{package} cannot be unpacked", remedy=f"rm {package}, and run again")
    (root / "etc/passwd").write_text(_USERS.format(user=user))
    (root / "etc/group").write_text(f"root:x:0:\npgm:x:{user}:\n")
    for name in ("tmp", "run", "proc", "sys", "dev"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def python_of(root: Path) -> str:
    """Return the version of the tree's Python, such as "3.11"."""
    return os.readlink(root / "usr/bin/python3").removeprefix("python")


def compile_modules(root: Path, *folders: Path) -> None:
    """Write the byte code of Python modules by the tree's own interpreter: users of the image may not write there."""
    libraries = sorted((root / "usr/lib").glob("*-linux-gnu*"))
    loader = next((root / "usr/lib64").glob("ld-linux-*"), None) or next((root / "usr/lib").glob("ld-linux-*"))
    paths = ":".join(str(one) for one in libraries)
    python: list[str | Path] = [
        loader,
        "--library-path",
        paths,
        root / "usr/bin" / f"python{python_of(root)}",
        "-BPS",  # without byte code of its own imports, which would have the path of this folder
    ]
    inside: list[str | Path] = ["-p", "/", "-s", root]  # paths in the image
    environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0"}
    # "unchecked-hash": no times, so that the same files make the same image
    run(*python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", *inside, *folders, env=environment)
