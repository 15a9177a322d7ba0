"""Imports point one way, and the sans-IO layers use neither clock nor socket nor global randomness."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.layers import FOLDERS, IMPURE_MODULES, LAYERS, PURE, VALUE_MODULES, folder_of, layer_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pgm", "aggregator", "repairer", "deploy")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache  # several tests ask for every module
def imports_of(path: Path) -> tuple[str, ...]:
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            for alias in node.names:
                target = ROOT.joinpath(*node.module.split("."), f"{alias.name}.py")
                if target.exists():
                    yield f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    module = module_of(path)
    layer = layer_of(module)
    assert layer is not None, f"{module} belongs to no layer"
    _, allowed, packages = LAYERS[layer]
    for name in imports_of(path):
        top = name.partition(".")[0]
        if top in PACKAGES:
            target = layer_of(name)
            assert target is not None
            # `from pgm.x import y` names package pgm.x, which decides; the bare package is the public interface.
            assert target == layer or target in allowed, f"{module} ({layer}) imports {name} ({target})"
        elif top not in sys.stdlib_module_names:
            assert {"attr": "attrs"}.get(top, top) in packages, f"{module} ({layer}) imports {name}"
        elif layer in PURE:
            is_value = top == "datetime" and module in VALUE_MODULES
            assert is_value or top not in IMPURE_MODULES, f"{module} is sans-IO and imports {name}"


@pytest.mark.parametrize("path", [one for one in FILES if layer_of(module_of(one)) in PURE], ids=module_of)
def test_sans_io_modules_use_only_the_randomness_they_are_given(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random", f"{path}:{node.lineno} uses random.{node.attr}"
        if isinstance(node, ast.Attribute) and node.attr == "default_rng":
            pytest.fail(f"{path}:{node.lineno} makes a generator of its own")


def test_functions_have_at_most_sixty_lines() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in (*FILES, *TESTS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert len(lengths) > len(FILES)
    assert {place: length for place, length in lengths.items() if length > 60} == {}


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_import_only_lower_folders(package: str) -> None:
    order = FOLDERS[package]
    for path in FILES:
        module = module_of(path)
        if not module.startswith(f"{package}."):
            continue
        level = order.index(folder_of(module, package))
        for name in imports_of(path):
            if name.startswith(f"{package}."):
                folder = folder_of(name, package)
                assert order.index(folder) <= level, f"{module} imports {name}: {folder!r} is above {order[level]!r}"


def import_circles() -> list[list[str]]:
    """Return the groups of modules that import each other, whatever the purpose of the import."""
    modules = {module_of(path): path for path in FILES}
    imported = {module: {name for name in imports_of(path) if name in modules} for module, path in modules.items()}
    importers: dict[str, set[str]] = {module: set() for module in modules}
    for module, names in imported.items():
        for name in names:
            importers[name].add(module)
    while True:  # a module without imports, or without importers, is in no circle
        loose = [module for module in imported if not imported[module] or not importers[module]]
        if not loose:
            return [sorted(imported)] if imported else []
        for module in loose:
            for name in imported.pop(module):
                importers[name].discard(module)
            for name in importers.pop(module):
                imported[name].discard(module)


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert import_circles() == []


def test_nothing_but_deploy_sees_all_roles() -> None:
    for path in FILES:
        if path.parts[len(ROOT.parts)] == "pgm":
            assert not any(name.partition(".")[0] in ("aggregator", "repairer", "deploy") for name in imports_of(path))


def test_the_package_exports_few_names() -> None:
    import pgm

    assert len(pgm.__all__) <= 34
    assert {*pgm.__all__} <= {*dir(pgm)}
    assert all(getattr(pgm, name) is not None for name in pgm.__all__)
    assert not hasattr(pgm, "nothing")


def test_a_part_of_the_package_does_not_load_the_rest() -> None:
    program = "import pgm.errors, sys; print([name for name in ('trio', 'numpy', 'pgm.net') if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == "[]\n"
