"""The rules that keep the packages apart and the commands quick, read off the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rank", "difficulty", "simulate", "analyses")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
HEAVY = {"matplotlib", "networkx", "choix", "statsmodels", "joblib", "rich", "pyarrow", "dask", "distributed"}
IDS = [str(path.relative_to(ROOT)) for path in MODULES]


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Full dotted names, `from a import b` as a.b."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import_time(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: not in functions, not under TYPE_CHECKING."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_import_time(node.orelse)
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from at_import_time(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from at_import_time(handler.body)


def test_finder_sees_what_it_should() -> None:
    source = "import rich\nif TYPE_CHECKING:\n    import choix\n"
    source += "try:\n    from scipy import stats\nexcept E:\n    pass\n"
    source += "def f():\n    import joblib\nclass A:\n    import dask\n"
    names = list(imported(at_import_time(ast.parse(source).body)))
    assert names == ["rich", "scipy.stats", "dask"]


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_packages_import_in_one_direction(path: Path) -> None:
    own = PACKAGES.index(path.relative_to(ROOT).parts[0])
    for name in imported(ast.walk(ast.parse(path.read_text("utf-8")))):
        top = name.split(".")[0]
        assert top not in {"tests", "scripts"}, name
        assert top not in PACKAGES or PACKAGES.index(top) <= own, f"{name}: {' < '.join(PACKAGES)}"


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_no_heavy_import_at_module_level(path: Path) -> None:
    if path.name == "plotting.py":
        return
    for name in imported(at_import_time(ast.parse(path.read_text("utf-8")).body)):
        assert name.split(".")[0] not in HEAVY, name
        assert not name.startswith("scipy.stats"), name


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_no_path_of_a_machine_in_the_source(path: Path) -> None:
    machine_path = re.compile(r"""["'\s](/(home|Users|work|root|tmp|opt|mnt)/|[A-Z]:\\\\)""")
    assert not machine_path.search(path.read_text("utf-8"))


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_is_light(package: str) -> None:
    heavy = sorted(HEAVY | {"numpy", "pandas", "scipy"})
    code = f"import sys, {package}; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package: str) -> None:
    module = __import__(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


@pytest.mark.parametrize("module", ["rank.command", "rank.exceptions", "analyses.command"])
def test_command_modules_import_neither_numpy_nor_pandas(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'numpy', 'pandas', 'rich'}} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.strip() == "[]"
