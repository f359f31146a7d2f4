"""``jrs chaos``: run a job under faults, and check what a run has recorded."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jrs.cli.common import Suggesting, echo, echo_json, import_from_here, json_option
from jrs.cli.durations import DURATION
from jrs.cli.jobs import arguments_of
from jrs.client.connection import entry_point_of
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import counted
from jrs.host.signals import ended_by_signals
from jrs.recovery.attempt.entry_check import check_entry
from jrs.testing.chaos.checking.jobs import counts, undisturbed_jobs
from jrs.testing.chaos.checking.verdict import Check, Run, Violation
from jrs.testing.chaos.failure import ChaosFailure
from jrs.testing.chaos.faults import SCHEMES
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.progress import told_of
from jrs.testing.chaos.reading import CHECKS, checks_of, nemesis_of, repeated, run_of
from jrs.testing.chaos.strikes import never_hit
from jrs.testing.chaos.world import World

EXIT_VIOLATED = 1

_check_option = click.option(
    "--check", "names", multiple=True, metavar="NAME",
    help=f"Make only this check: {', '.join(CHECKS)}. Repeatable.",
)  # fmt: skip


@click.group("chaos", cls=Suggesting, context_settings={"help_option_names": ["-h", "--help"]})
def chaos_command() -> None:
    """Test whether jobs survive faults. Needs jrs[chaos].

    \b
    Examples:
      jrs chaos run etl.jobs:orders --copies 20 --nemesis 'kill(every=2) | pause(3)'
      jrs chaos run etl.jobs:orders --on etcd --nemesis 'partition("leader")' --seed 11
      jrs chaos check /tmp/jrs-chaos-x1 --check linearizable
    """


@chaos_command.command("run")
@click.argument("entry_point")
@click.option("--on", "scheme", type=click.Choice(SCHEMES), default="file", show_default=True,
              help="The backend. Servers are started for the run.")  # fmt: skip
@click.option("--masters", type=click.IntRange(1, 20), default=3, show_default=True,
              help="How many masters run.")  # fmt: skip
@click.option("--seconds", type=DURATION, metavar="DURATION", default="30s", show_default=True,
              help="How long faults last; less if every job has ended.")  # fmt: skip
@click.option("--timeout", type=DURATION, metavar="DURATION", default="120s", show_default=True,
              help="Within this time after the faults, every job has to end.")  # fmt: skip
@click.option("--ttl", type=DURATION, metavar="DURATION", default="2s", show_default=True,
              help="After this time, a leader that hangs is replaced.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Determines the faults.")
@click.option("--copies", type=click.IntRange(1, 10_000), default=10, show_default=True,
              help="How many copies of the job are submitted.")  # fmt: skip
@click.option("--nemesis", default="kill() | pause(3)", show_default=True, metavar="NEMESES",
              help="The faults; docs/chaos.md lists all.")  # fmt: skip
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE",
              help="An argument; VALUE is JSON if it parses, else text. Repeatable.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="A new folder for the run's files; by default a temporary one.")  # fmt: skip
@_check_option
@json_option
def run_command(
    entry_point: str, scheme: str, copies: int, nemesis: str, pairs: tuple[str, ...],
    folder: Path | None, names: Sequence[str], as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Run copies of a job under faults, and check that they survive.

    Masters run as processes of their own, on real servers, and are started again when they end. The
    exit code is 1 if a check finds a violation.

    \b
    Example:  jrs chaos run etl.jobs:orders --copies 20 --nemesis 'kill(every=2)'
    """
    wanted = checks_of(names)
    entry, arguments = entry_point_of(entry_point), arguments_of(pairs, None)
    # Before anything is started; modules are found where the masters find them, too.
    import_from_here()
    check_entry(entry, arguments)
    plan = Plan(backend=scheme, nemesis=nemesis_of(nemesis), **settings)
    if folder is not None and folder.exists():
        raise InvalidInput(f"{folder} exists: name a new folder")
    folder = folder or Path(tempfile.mkdtemp(prefix="jrs-chaos-"), "run")
    options = {"--on": scheme, "--copies": copies, "--nemesis": nemesis}
    options |= {f"--{name}": value for name, value in settings.items()}
    words = [word for name, value in options.items() for word in (name, str(value))]
    words += [word for pair in pairs for word in ("--arg", pair)]
    words += [word for name in names for word in ("--check", name)]
    again = shlex.join(["jrs", "chaos", "run", entry_point, *words])
    with (
        ended_by_signals(),
        World(plan, scheme, folder, again=again, say=lambda text: echo(text, err=True)) as world,
    ):
        world.submit("job", entry, copies=copies, **arguments)
        found: Sequence[Violation] = ()
        try:
            world.check(*wanted)
        except ChaosFailure as failure:
            found = failure.violations
        run = world.ended
    _print(run, wanted, found, folder, as_json)


@chaos_command.command("check")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_check_option
@json_option
def check_command(folder: Path, names: Sequence[str], as_json: bool) -> None:
    """Repeat the checks of a run on the history that it has left in FOLDER.

    The exit code is 1 if a check finds a violation.

    \b
    Example:  jrs chaos check /tmp/jrs-chaos-x1 --check linearizable
    """
    checks_of(names)
    run = run_of(folder)
    wanted = repeated(names, run.notes)
    found = list[Violation]()
    for each in wanted:
        violations = each.violations(run)
        if each.name in names and not violations and not each.can_judge(run):
            raise InvalidInput(f"{folder} has nothing that {each.name} could look at")
        found += violations
    _print(run, wanted, found, folder, as_json)


def _print(
    run: Run, checks: Sequence[Check], found: Sequence[Violation], folder: Path, as_json: bool
) -> None:
    figures, missed = counts(run), [*never_hit(run.notes), *undisturbed_jobs(run)]
    if as_json:
        violations = [{"check": one.check, "message": one.message, "calls": one.calls}
                      for one in found]  # fmt: skip
        blind = {each.name for each in checks if not each.can_judge(run)}
        blind -= {one.check for one in found}
        echo_json({"folder": str(folder), "not_checked": sorted(blind),
                   "checks": [each.name for each in checks if each.name not in blind],
                   "violations": violations, "never_hit": missed, "figures": figures})  # fmt: skip
    else:
        for each in checks:
            broken = [one for one in found if one.check == each.name]
            state = "broken" if broken else "holds" if each.can_judge(run) else "not checked"
            echo(f"{state:11}  {each.name:15}  {each.promise}")
            for one in broken[:10]:
                echo(f"          {one.message}")
        for line in missed:
            echo(line)
        for line in told_of(run.notes):
            echo(line)
        echo(f"{', '.join(f'{count:,} {name}' for name, count in figures.items())}")
        report = folder / "report.html"
        place = report if report.exists() else folder
        echo(f"{counted(len(found), 'violation', 'violations')}; {place}")
    if found:
        sys.exit(EXIT_VIOLATED)
