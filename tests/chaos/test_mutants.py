"""Mutants: careless changes of the product, each of which the chaos kit finds on real processes.

A mutant is a patch in the folder ``mutants``. Its first line says which change it is; the lines
behind that say which checks find it, on which backend and under which load and faults: the fields
of `Settings`. A patch that cannot be applied any more is a test that fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.testing.servers.fixtures import missing
from tests.chaos.mutant_load import Settings

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_PATCHES = sorted((_HERE / "mutants").glob("*.patch"))
_PARTS = ("jrs", "backends", "recovery")
_QUICK = ("file_update_unchecked", "file_fence_unchecked", "file_half_commit")
"""The mutants that CI runs."""
_TIMEOUT = 240.0
_TURNS = 3
"""How often a mutant is looked for, with another seed each time: loads are random."""

soak = pytest.mark.soak


@attrs.frozen
class Mutant:
    """A patch, and what its first lines say.

    Attributes:
        found_by: the checks that find it.
    """

    path: Path
    change: str
    found_by: frozenset[str]
    settings: Settings

    @classmethod
    def read(cls, path: Path) -> Mutant:
        head = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
        given = dict(line.split(": ", 1) for line in head[1:])
        found_by = frozenset(given.pop("found by").split(", "))
        types: dict[str, Any] = {
            field.name: type(field.default) for field in attrs.fields(Settings)
        }
        settings = Settings(**{name: types[name](value) for name, value in given.items()})
        return cls(path, head[0], found_by, settings)


MUTANTS = [Mutant.read(path) for path in _PATCHES]


def copy_product(folder: Path) -> None:
    """Copy the product, with what Python has compiled of it."""
    for part in _PARTS:
        shutil.copytree(_ROOT / part, folder / part, symlinks=True)


def apply(patch: Path, folder: Path) -> None:
    """Apply a patch to a copy, without any fuzz."""
    if shutil.which("patch") is None:
        missing("no 'patch' on the PATH: apt-get install patch")
    command = ["patch", "-p1", "--batch", "--fuzz=0", "--input", str(patch)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{patch.name} does not apply:\n{done.stdout}{done.stderr}"


def evaluate(product: Path, settings: Settings, folder: Path) -> dict[str, str]:
    """Run the load with a copy of the product; return what each check has found first."""
    given = json.dumps(attrs.asdict(settings))
    done = subprocess.run(
        [sys.executable, str(_HERE / "mutant_load.py"), "run", given, str(folder)],
        cwd=product,
        env={**os.environ, "PYTHONPATH": str(product)},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _case(mutant: Mutant) -> Any:
    name = mutant.path.stem
    return pytest.param(mutant, id=name, marks=() if name in _QUICK else soak)


@pytest.mark.parametrize("mutant", [_case(mutant) for mutant in MUTANTS])
def test_mutant_is_found(mutant: Mutant, tmp_path: Path) -> None:
    product = tmp_path / "product"
    copy_product(product)
    apply(mutant.path, product)

    found: dict[str, str] = {}
    for turn in range(_TURNS):
        settings = attrs.evolve(mutant.settings, seed=mutant.settings.seed + turn)
        found |= evaluate(product, settings, tmp_path / f"world-{turn}")
        if mutant.found_by <= found.keys():
            return

    pytest.fail(f"{mutant.change} Only this was found: {found}")


@soak
@pytest.mark.parametrize("settings", [*dict.fromkeys(one.settings for one in MUTANTS)], ids=str)
def test_unchanged_product_passes(settings: Settings, tmp_path: Path) -> None:
    assert evaluate(_ROOT, settings, tmp_path / "world") == {}


@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.path.stem) for one in MUTANTS])
def test_patch_applies(mutant: Mutant, tmp_path: Path) -> None:
    assert mutant.change.endswith(".")
    names = {line[6:] for line in mutant.path.read_text().splitlines() if line.startswith("--- a/")}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, tmp_path / name)

    apply(mutant.path, tmp_path)

    for name in names:
        compile((tmp_path / name).read_text(), name, "exec")
