"""Build of the container image: `python -m deploy.image WHEEL --out pgm.tar`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from deploy.image.archive import all_below, layer_of, write_archive
from deploy.image.debian import PACKAGES, compile_modules, fetch_packages, python_of, run, unpack
from deploy.terminal.output import command, print_json

USER = 65532  # that of the manifests of `pgm render --format kubernetes`
EXTRAS = ("fec", "monitor", "trust")
_SCRIPT = """\
#!/usr/bin/python3
from deploy.__main__ import run

run()
"""


def install(wheel: Path, extras: tuple[str, ...], root: Path) -> Path:
    """Install the wheel with its dependencies, as wheels, for the Python in `root`. Return their folder."""
    version = python_of(root)
    folder = root / f"usr/local/lib/python{version}/dist-packages"
    options: list[str | Path] = [
        "--quiet",
        "--no-compile",
        "--only-binary=:all:",
        "--python-version",
        version,
        "--target",
        folder,
    ]
    run(sys.executable, "-m", "pip", "install", *options, f"{wheel.resolve()}[{','.join(extras)}]")
    shutil.rmtree(folder / "bin", ignore_errors=True)  # scripts with the path of this machine's interpreter
    for tests in sorted(folder.glob("*/**/tests")):
        shutil.rmtree(tests, ignore_errors=True)
    for name in ("direct_url.json", "RECORD"):  # they name paths of this machine
        for file in folder.glob(f"*.dist-info/{name}"):
            file.unlink()
    script = root / "usr/local/bin/pgm"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPT)
    script.chmod(0o755)
    return folder


def config_of(version: str) -> dict[str, Any]:
    """Return the configuration of the image: user, environment and command."""
    return {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"],
        "Entrypoint": ["pgm"],
        "Cmd": ["--help"],
        "WorkingDir": "/",
        "Labels": {"org.opencontainers.image.title": "pgm", "org.opencontainers.image.version": version},
    }


@click.command()
@click.argument("wheel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Archive to write.")
@click.option("--extra", "extras", multiple=True, default=EXTRAS, show_default=True, help="Extra; may be repeated.")
@command
def main(wheel: Path, out: Path, extras: tuple[str, ...], as_json: bool) -> None:
    """Build an image of a WHEEL of this project on Debian packages, as an archive after the OCI image layout.

    Needs apt, dpkg and tar, but neither root nor an engine. `podman load -i ARCHIVE` and `skopeo copy oci-archive:ARCHIVE`
    read the archive.
    """
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="pgm-image-") as name:
        work, root = Path(name), Path(name) / "root"
        root.mkdir()
        unpack(fetch_packages(PACKAGES, work / "packages"), root, USER)
        compile_modules(root, root / f"usr/lib/python{python_of(root)}")
        base = all_below(root)
        compile_modules(root, install(wheel, extras, root))
        rest = set(all_below(root)) - set(base)
        layers = [layer_of(root, base), layer_of(root, rest)]
        architecture = run("dpkg", "--print-architecture").strip()
        digest = write_archive(out, layers, architecture, config_of(version), f"pgm:{version}")
    octets = out.stat().st_size
    if as_json:
        print_json({"archive": str(out), "digest": digest, "octets": octets, "image": f"pgm:{version}"})
    else:
        click.echo(f"{out}: pgm:{version}, {octets / 1e6:.0f} MB, {digest}")


if __name__ == "__main__":
    main(prog_name="python -m deploy.image")
