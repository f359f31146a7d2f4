"""The package as others see it: its layers, its public names, its wheel."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jrs
from jrs.cli import cli
from jrs.contract.formats import NEWEST_FORMAT
from jrs.store.backend_schemes import OWN

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def exact_versions() -> dict[str, str]:
    """Return the version of each package that CI installs."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def imports(path: Path) -> Iterator[str]:
    """Yield what a module imports when it runs, type checking aside."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_spark_is_imported_in_one_place() -> None:
    """Only recovery/spark and the demo's jobs import pyspark."""
    found = {
        path.parent.name
        for folder in ("jrs", "backends", "recovery")
        for path in (ROOT / folder).rglob("*.py")
        if any(name.startswith("pyspark") for name in imports(path))
    }

    assert found <= {"spark", "demo"}


def test_nothing_is_pickled() -> None:
    """No module of the package can store or load a pickle; two tell Spark how to send functions
    to its workers, which it pickles itself.
    """
    modules = [*(ROOT / "jrs").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]
    modules += (ROOT / "recovery").rglob("*.py")

    found = {(m.relative_to(ROOT), name) for m in modules for name in imports(m)}
    assert {one for one in found if "pickle" in one[1]} == {
        (Path("recovery/spark/by_value.py"), "pyspark.cloudpickle"),
        (Path("recovery/spark/session.py"), "pyspark.cloudpickle"),
    }


def test_public_names() -> None:
    """Every public name exists, and the list is sorted."""
    assert sorted(jrs.__all__) == jrs.__all__
    assert all(getattr(jrs, name) is not None for name in jrs.__all__)


def test_reference_names_the_public_names() -> None:
    """The reference has an entry for each public name, and for nothing else."""
    text = (ROOT / "docs" / "reference.md").read_text()
    directives = r"auto(?:class|exception|function)|py:type"
    named = re.findall(rf"^\.\. (?:{directives}):: jrs\.(\w+)$", text, re.MULTILINE)

    assert sorted(named) == sorted(set(jrs.__all__) - {"__version__"})
    assert "`jrs.__version__`" in text


def test_docs_name_the_commands() -> None:
    """Each command of `jrs` is in the reference, which is generated, and in a page that a person
    wrote."""
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    named = set(re.findall(r"\bjrs ([a-z-]+)", "\n".join(pages)))

    assert any("{jrs-commands}" in page for page in pages)
    with click.Context(cli) as context:
        assert named >= set(cli.list_commands(context))


def test_importing_jrs_is_light() -> None:
    """J9: a reader of results loads no dispatcher, no table and no Spark."""
    code = "import jrs, sys; jrs.JobResultStore; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"pyspark", "rich", "click", "jrs.recovery", "tenacity"} & set(loaded)


def test_a_backend_of_a_third_party(tmp_path: Path) -> None:
    """J9: a package that jrs knows nothing of gives a backend by an entry point, and results are
    kept in it."""
    (tmp_path / "drawer.py").write_text(
        "from jrs.backends.memory import open_memory\n"
        "def open_drawer(url, cluster, create):\n"
        "    print('a drawer is opened')\n"
        "    return open_memory(url.replace('drawer:', 'memory:'), cluster, create)\n"
    )
    info = tmp_path / "drawer-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drawer\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[jrs.backends]\ndrawer = drawer:open_drawer\n")
    code = (
        "import sys\n"
        "from jrs import JobResult, JobResultStore, JobStatus, open_backend\n"
        "open_backend('memory://top').close()\n"
        "sys.path.insert(0, sys.argv[1])  # Installed while the process runs.\n"
        "with open_backend('drawer://top') as backend:\n"
        "    store = JobResultStore(backend)\n"
        "    store.create_dirty(JobResult('job', JobStatus.FINISHED, payload=7), None)\n"
        "    print(store.wait('job', 0).payload)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout

    assert said == "a drawer is opened\n7\n"


def test_our_own_backends_are_entry_points_alike() -> None:
    """Older versions, and tools, look for them there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert OWN.items() <= project["entry-points"]["jrs.backends"].items()


def test_supported_versions_are_stated_alike() -> None:
    """README names the versions that the tests run with: the classifiers' of Python, and of PySpark
    those from the lowest requirement to the one that CI installs."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    stated = re.search(r"with Python ([\d., and]+)\. Jobs .* PySpark ([\d., or]+)\. ", readme)
    assert stated is not None
    pythons, sparks = (re.findall(r"\d+\.\d+", versions) for versions in stated.groups())
    tried = re.findall(r"^(?:pythons|pysparks)=\((.+)\)$", (ROOT / "dev").read_text(), re.MULTILINE)
    other_pythons, other_sparks = (versions.split() for versions in tried)
    (spark,) = (one for one in PROJECT["optional-dependencies"]["spark"] if "pyspark" in one)

    classified = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "3." in text]
    assert pythons == classified
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert pythons[1:] == other_pythons
    assert spark == f"pyspark>={sparks[0]}"
    assert sparks[:-1] == [version.rpartition(".")[0] for version in other_sparks]
    assert exact_versions()["pyspark"].startswith(f"{sparks[-1]}.")


def test_the_version_is_stated_alike() -> None:
    """The changelog begins with the version of the package; the page about upgrading has a row for
    each format, and the newest one is this version's."""
    (changed, *_) = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "upgrading.md").read_text()
    formats = re.findall(r"^\| (\d+) \| (.*?) \|", page, re.MULTILINE)

    assert PROJECT["version"] == changed
    assert [int(number) for number, _ in formats] == list(range(1, NEWEST_FORMAT + 1))
    current = f"{changed.rpartition('.')[0]} (this version)"
    assert [number for number, by in formats if by == current] == [str(NEWEST_FORMAT)]


def test_constraints_hold_what_the_project_requires() -> None:
    """CI installs one exact version of each package that the project requires, and of what builds
    it. A new requirement, or a raised one, needs `./dev constraints`."""
    versions = exact_versions()
    wanted = ["pip", *PYPROJECT["build-system"]["requires"], *PROJECT["dependencies"]]
    for extra in PROJECT["optional-dependencies"].values():
        wanted += extra

    for requirement in map(Requirement, wanted):
        if requirement.name != "jrs":
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement}, not {version}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the sources, so that nothing that lies next to them gets in."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("jrs", "backends", "recovery"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_wheel_holds_jrs_alone(wheel: Path) -> None:
    """A wheel holds jrs with backends and recovery as real files, and nothing else on top."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"jrs"}
    expected = {
        f"{place}/{path.relative_to(ROOT / folder)}"
        for folder, place in (
            ("jrs", "jrs"),
            ("backends", "jrs/backends"),
            ("recovery", "jrs/recovery"),
        )
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == expected
    assert "jrs/py.typed" in names
    assert {"jrs/sidecar/static/jrs.css", "jrs/sidecar/templates/base.html"} <= set(names)


def test_a_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """A wheel that is installed with no extra is imported, prints its help, and runs a job."""
    home = tmp_path / "empty"
    environment = {**os.environ, "JRS_BACKEND": (tmp_path / "store").as_uri()}
    environment.pop("PYTHONPATH", None)  # It may lead to a checkout.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin" / "python",
        "install",
        "-q",
    ]
    pip += ["--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(pip, env=environment, check=True, capture_output=True)
    (tmp_path / "sums.py").write_text("def add(job, a, b):\n    return a + b\n")

    def run(program: str, *arguments: str) -> str:
        return subprocess.run(
            [home / "bin" / program, *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    assert run("python", "-c", "import jrs; print(jrs.__file__)").startswith(str(home))
    assert "submit" in run("jrs", "--help")
    run("jrs", "submit", "sum", "sums.py:add", "--arg", "a=3", "--arg", "b=4")
    with subprocess.Popen(
        [home / "bin" / "jrs", "master"], cwd=tmp_path, env=environment
    ) as master:
        try:
            assert "7" in run("jrs", "wait", "sum", "--timeout", "120").split()
        finally:
            master.terminate()


def test_tests_on_spark_are_where_ci_runs_them() -> None:
    """`./dev test` collects two folders for them; one that is elsewhere is a long form."""
    elsewhere = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in ("docs", "spark")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and {"pytest.mark.spark"}
        == {"pytest.mark.spark", "pytest.mark.soak"}.intersection(
            map(ast.unparse, node.decorator_list)
        )
    ]

    assert elsewhere == []
