"""The simulation of failovers: clean runs pass, equal seeds give equal runs, mutants are found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from jrs.testing.chaos.checking import protocol
from jrs.testing.simulation.backend import SimStore
from jrs.testing.simulation.explored import ExploredChances, ExploredScheduler, ExploredSpace
from jrs.testing.simulation.scheduler import Process, Request
from tests.support import BOUND, in_long_form, until
from tests.testing.simulation.mutants import MUTANTS, SCENARIO

ROOT = Path(__file__).parents[3]
QUICK = ("fence-stays-open", "clean-first", "shut-out-without-fence", "stage-is-forgotten")
"""The mutants that CI looks for; the long form looks for all."""


def test_clean_runs() -> None:
    """Masters that die and hang, lost answers and late requests break no promise."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs.testing.simulation", "--seeds", "40", "--workers", "1",
         *(word for name, value in SCENARIO.items()
           for word in (f"--{name.replace('_', '-')}", str(value)))],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    failovers = re.search(r"runs 40, failovers ([0-9]+)", done.stdout)
    assert failovers, done.stdout
    assert int(failovers[1]) > 20


def test_every_kind_of_fault_in_turn() -> None:
    """Each lost answer, and a death, a stop and another order at many steps: the long form takes
    every step."""
    stride = in_long_form(1, 32)
    done = subprocess.run(
        [sys.executable, "-m", "jrs.testing.simulation", "--systematic", "--stride", str(stride)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    runs = re.search(r"runs ([0-9,]+), ", done.stdout)
    assert runs, done.stdout
    assert int(runs[1].replace(",", "")) > 50


def explored(*options: str) -> re.Match[str]:
    """Explore a small scenario; return the numbers of its states and ends."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs.testing.simulation", "--exhaustive", *options],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"states ([0-9,]+)( \(not all\))?, steps [0-9,]+, ends ([0-9,]+)", done.stdout
    )
    assert found, done.stdout
    return found


@pytest.mark.parametrize("fault", ["", "--crashes", "--pauses", "--unknowns"])
def test_every_state(fault: str) -> None:
    """Two masters, a client and an attempt, of which one dies or is stopped, or an answer is lost,
    at any moment: the long form goes through all states, the short one through some of them."""
    states = in_long_form(1 << 24, 150)
    found = explored("--states", str(states), *((fault, "1") if fault else ()))

    assert bool(found[2]) == (states < 1 << 24)
    assert found[2] or int(found[3]) > 0


def test_what_is_left_out_changes_no_end() -> None:
    """Runs end in the same states without the orders and deaths that are left out: those behind
    some steps, in the long form all of a run without faults."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.testing.simulation.reduction",
         *["--all"] * in_long_form(1, 0)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        check=False, timeout=3600,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_equal_digests_mean_equal_states(tmp_path: Path) -> None:
    """Wherever two walks reach the same digest, the same can come next; and two steps that do not
    use the same things lead to the same digest in either order."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.testing.simulation.walks", str(tmp_path / "walks")],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_exploration_that_is_ended_leaves_no_files() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jrs.testing.simulation", "--exhaustive"], cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        folder = until(lambda: explored_by(process.pid), "its simulators run")
        process.terminate()
        process.wait(BOUND)

    assert folder.name.startswith("jrs-explored-")
    assert not folder.exists()


def explored_by(pid: int) -> Path | None:
    """Return the folder of an exploration, once a simulator of it works there."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            place = Path(f"/proc/{child}/cwd").readlink()
            if place.name == "run":
                return place.parent
    return None


def late(*, what: str, is_read: bool = False) -> list[tuple[object, ...]]:
    """Return what distinguishes the state in which a request of a dead process is late."""
    scheduler = ExploredScheduler()
    store = SimStore(scheduler, ExploredChances(), ExploredSpace(scheduler.clock, scheduler))
    request = store.send_late(Process("m1"), Request((what,), lambda: None))
    scheduler.settle()
    if is_read:
        request.decide(False)
    return list(scheduler.processes(None))


def test_states_differ_by_what_is_late() -> None:
    """Which request it is, and whether a read was answered that decides it."""
    assert late(what="one") == late(what="one")
    assert late(what="one") != late(what="two")
    assert late(what="one") != late(what="one", is_read=True)


@pytest.mark.parametrize("name", ["result-without-marker", "fence-stays-open"])
def test_an_exploration_finds_a_mutant(name: str) -> None:
    """A broken commit is found in all states, too, and a shorter run that shows it is searched."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.testing.simulation.mutants", name, "--exhaustive"], cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert "the result of job-0 is written" in found["message"]
    assert found["steps"] <= found["first"]
    assert any("job-0 is submitted" in line for line in found["story"])


def test_equal_seeds_give_equal_runs(tmp_path: Path) -> None:
    """A run is a function of its seed: all that was asked and answered, to the byte."""
    said = []
    for _ in range(2):
        program = (
            "import sys; from pathlib import Path;"
            "from jrs.testing.simulation.failover import Scenario;"
            "from jrs.testing.simulation.random_runs import simulate;"
            f"ended = simulate(7, Scenario(), Path({str(tmp_path / 'files')!r}));"
            "sys.stdout.buffer.write(b''.join(event.to_line() for event in ended.run.events))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True, check=True, timeout=60,
        )  # fmt: skip
        said.append(done.stdout)
        shutil.rmtree(tmp_path / "files")  # Its path is in some records.

    assert said[0]
    assert said[0] == said[1]


def test_every_mutant_changes_the_code_as_it_is() -> None:
    """The long form alone looks for most mutants: what they replace is looked up here."""
    for mutant in MUTANTS:
        spec = importlib.util.find_spec(mutant.module)
        assert spec is not None
        assert spec.origin is not None
        assert mutant.changed(Path(spec.origin).read_text())


def test_every_rule_says_what_it_demands() -> None:
    """The protocol is stated in its module, rule by rule."""
    assert all(rule.__doc__ for rule in protocol.RULES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(mutant.name, marks=() if mutant.name in QUICK else pytest.mark.soak)
        for mutant in MUTANTS
    ],
)
def test_a_mutant_is_found(name: str) -> None:
    """A careless change of the protocol's code is found, and told as a story."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.testing.simulation.mutants", name], cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["seed"] is not None
    assert any("leads in epoch 1" in line for line in found["story"])
    print(f"{name}: {found['check']}: {found['message']} ({found['seconds']} s)")
