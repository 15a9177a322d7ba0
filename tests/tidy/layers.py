"""Permitted imports: the table that `test_imports` enforces and `docs/internals/design.md` shows."""

from __future__ import annotations

# layer -> (modules of the layer, project layers that it may import, third-party packages that it may import)
LAYERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "errors, units": (
        ("pgm.errors", "pgm.units", "pgm.deprecated", "pgm.crc32", "pgm.own_files", "pgm.core_usage"),
        (),
        ("attrs", "isal"),
    ),
    "parameters": (("pgm.parameters",), ("errors, units",), ("attrs",)),
    "impairments": (("pgm.impairments",), (), ("attrs", "numpy")),
    "models": (("pgm.models",), ("errors, units",), ("attrs", "numpy")),
    "wire": (("pgm.wire",), ("errors, units",), ("attrs", "numpy")),
    "trust": (("pgm.trust",), ("errors, units", "wire"), ("attrs", "numpy", "cryptography", "blake3")),
    "fec": (("pgm.fec",), ("errors, units", "wire"), ("attrs", "numpy", "zfec")),
    "messages": (("pgm.messages",), ("errors, units",), ("attrs", "cattrs", "numpy", "cbor2", "pyarrow")),
    "core": (("pgm.core",), ("errors, units", "parameters", "wire", "fec"), ("attrs", "numpy")),
    "topology": (
        ("pgm.topology",),
        ("errors, units", "parameters", "impairments", "models", "trust"),
        ("attrs", "cattrs"),
    ),
    "prediction": (
        ("pgm.prediction",),
        ("errors, units", "parameters", "impairments", "trust", "models", "topology"),
        ("attrs", "numpy"),
    ),
    "mutual_tls": (
        ("pgm.mutual_tls",),
        ("errors, units", "trust", "topology"),
        ("attrs", "cryptography", "sniffio"),
    ),
    "tape": (
        ("pgm.tape",),
        ("errors, units", "parameters", "wire", "fec", "core", "topology"),
        ("attrs", "numpy", "cbor2"),
    ),
    "telemetry": (
        ("pgm.telemetry",),
        ("errors, units", "parameters", "wire", "core", "topology"),
        ("attrs", "pyarrow"),
    ),
    "figures": (
        ("pgm.figures",),
        ("errors, units", "impairments", "telemetry"),
        ("attrs", "numpy", "pyarrow", "ruptures", "scipy"),
    ),
    "flight": (
        ("pgm.flight",),
        ("errors, units", "parameters", "wire", "core", "topology", "telemetry"),
        ("attrs", "numpy"),
    ),
    "elements": (
        ("aggregator", "repairer"),
        ("errors, units", "parameters", "wire", "fec", "core"),
        ("attrs", "numpy"),
    ),
    "archive": (
        ("pgm.archive",),
        ("errors, units", "parameters", "wire", "trust", "messages", "core", "topology", "telemetry", "mutual_tls"),
        ("attrs", "numpy", "pyarrow", "pyiceberg"),
    ),
    "net": (
        ("pgm.net", "pgm.blocking", "pgm"),
        (
            "errors, units", "parameters", "impairments", "wire", "trust", "messages", "core", "topology", "tape",
            "telemetry", "archive", "mutual_tls", "flight",
        ),
        ("attrs", "numpy", "sniffio", "trio", "cbor2", "ifaddr", "pyarrow"),
    ),
    "files": (
        ("pgm.files",),
        ("errors, units", "parameters", "wire", "messages", "core", "net"),
        ("attrs", "numpy", "trio", "cbor2"),
    ),
    "fleet": (
        ("pgm.fleet",),
        ("errors, units", "parameters", "topology", "telemetry", "flight", "net"),
        ("attrs", "trio", "h11"),
    ),
    "sim": (
        ("pgm.sim",),
        ("errors, units", "parameters", "impairments", "models", "wire", "core", "topology", "tape", "telemetry", "flight"),
        ("attrs", "numpy"),
    ),
    "spark": (
        ("pgm.spark",),
        (
            "errors, units", "parameters", "impairments", "models", "wire", "trust", "messages", "core", "topology",
            "telemetry", "archive", "mutual_tls", "figures",
        ),
        ("attrs", "numpy", "py4j", "pyarrow", "pyspark"),
    ),
    "processes": (
        ("aggregator.process", "repairer.process"),
        ("errors, units", "parameters", "wire", "core", "topology", "telemetry", "net", "elements", "archive"),
        ("attrs", "trio"),
    ),
    "deploy": (
        ("deploy",),
        (
            "errors, units", "parameters", "impairments", "models", "wire", "trust", "messages", "core", "topology", "tape",
            "telemetry", "flight", "elements", "net", "files", "fleet", "sim", "spark", "processes", "archive",
            "mutual_tls", "figures", "prediction",
        ),
        (
            "attrs", "numpy", "trio", "click", "rich", "cbor2", "matplotlib", "zmq", "pyarrow", "pyspark",
            "textual", "starlette", "hypercorn", "prometheus_client", "click_man",
            "opentelemetry",
        ),
    ),
}  # fmt: skip

# package -> its folders, lowest first; "" stands for the package's own modules except those listed. A folder imports
# itself and lower folders only.
FOLDERS: dict[str, tuple[str, ...]] = {
    "pgm.core": (
        "", "structures", "pacing", "session", "polling", "recovery", "repair", "window", "parity", "congestion",
        "element", "acked", "late_join", "receiver", "source",
    ),
    "pgm.net": ("wall_clock", "sockets", "framing", "keys", "link", "driver", "gate", "core_factory", "plan_digest", "control", "", "durable", "endpoint"),
    "pgm.archive": ("", "store", "recording", "service", "signatures", "tables"),
    "pgm.flight": ("", "verdicts"),
    "pgm.sim": ("", "checks", "crowd", "parts", "runs"),
    "pgm.spark": ("errors", "option_table", "decode", "fleet", "", "jobs", "tables"),
    "pgm.topology": ("", "rules", "check", "load", "plan", "changes", "describe", "url", "reference"),
    "deploy": (
        "reference", "terminal", "render", "node", "report", "fleet", "topology", "keys", "doctor", "simulation", "status", "bundle", "stream", "archive",
        "netcheck", "otlp", "monitor", "tune", "bench", "demo", "plan", "image", "cli", "__main__",
    ),
    "deploy.bench": (
        "", "contenders", "peers", "trial", "search", "settings", "ratios", "turns", "limits", "plot", "view",
        "benchmarks", "command",
    ),
}  # fmt: skip

# The sans-IO layers, and the modules that these layers must not import.
PURE = ("wire", "trust", "fec", "messages", "core", "elements")
# Modules about the types of datetime, which read no clock.
VALUE_MODULES = frozenset(
    {
        "pgm.messages.plain_values",
        "pgm.messages.structures",
        "pgm.messages.typed.encoder",
        "pgm.messages.typed.inference",
        "pgm.messages.typed.plain_rows",
        "pgm.trust.node_identity",
        "pgm.trust.signature_check",
        "pgm.trust.private_keys",
        "pgm.trust.public_keys",
    }
)
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "datetime",
        "logging",
        "multiprocessing",
        "os",
        "select",
        "signal",
        "socket",
        "subprocess",
        "threading",
        "time",
        "trio",
    }
)


def layer_of(module: str) -> str | None:
    """Return the layer of a module, by the longest matching name."""
    best, found = -1, None
    for layer, (names, _, _) in LAYERS.items():
        for name in names:
            if (module == name or module.startswith(f"{name}.")) and len(name) > best:
                best, found = len(name), layer
    return found


def folder_of(module: str, package: str) -> str:
    """Return the folder of a module inside a package; "" for a module of the package itself."""
    parts = module.removeprefix(f"{package}.").split(".")
    return parts[0] if parts[0] in FOLDERS[package] else ""


def as_markdown() -> str:
    """Return the table for the docs."""
    lines = ["| layer | modules | may import | third party |", "|---|---|---|---|"]
    for layer, (names, allowed, packages) in LAYERS.items():
        modules = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {layer} | {modules} | {'; '.join(allowed) or '-'} | {', '.join(packages) or '-'} |")
    return "\n".join(lines) + "\n"
