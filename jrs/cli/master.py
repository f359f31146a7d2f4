"""``jrs master``: the process that campaigns and, while it leads, runs the submitted jobs."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import attrs
import click

from jrs.cli import pid1
from jrs.cli.common import ClusterRef, echo, echo_json, spec_key_option, when, with_cluster
from jrs.contract import credentials
from jrs.contract.errors import InvalidInput, JrsError
from jrs.records.policies import MOST
from jrs.records.signing import SpecKey
from jrs.recovery.attempt import entry_point
from jrs.recovery.leader.outage import Outage
from jrs.recovery.leader.trust import Trust
from jrs.recovery.master import Master
from jrs.recovery.rules.events import Event
from jrs.recovery.rules.resource import Resource
from jrs.store.opening import open_backend


@click.command(
    "master",
    epilog="Start several masters, also on several hosts: one leads, the others take over.",
)
@click.option("--name", help="This master's name  [default: host, pid and random letters]")
@click.option("--ttl", type=float, default=15.0, show_default=True,
              help="Seconds after which a leader that hangs is replaced.")  # fmt: skip
@click.option("--storage", type=click.Path(path_type=Path, file_okay=False),
              help="The folder of the jobs' files, which all masters share.")  # fmt: skip
@click.option("--resource", "resources", multiple=True, metavar="MODULE:FUNCTION",
              help="A function that returns a jrs.Resource: something more to clean up after "
              "each job. Repeatable.")  # fmt: skip
@click.option("--max-attempts", type=click.IntRange(1, MOST), metavar="N",
              help="Most attempts at once while this master leads; other jobs wait, first "
              "submitted first.  [default: by cores and memory]")  # fmt: skip
@click.option("--allow-entry", "allowed", multiple=True, metavar="PATTERN",
              help="Run only jobs whose module or file matches this shell pattern, such as 'etl.*' "
              "or '/opt/jobs/*'; hold other jobs. Repeatable.")  # fmt: skip
@spec_key_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one per line.")
@with_cluster
def master_command(
    place: ClusterRef,
    name: str | None,
    ttl: float,
    storage: Path | None,
    resources: tuple[str, ...],
    max_attempts: int | None,
    allowed: tuple[str, ...],
    spec_key: SpecKey | None,
    as_json: bool,
) -> None:
    """Start a master: campaign, and while leading, recover and run submitted jobs.

    SIGTERM or SIGINT ends the master: it stops running attempts, and the next master takes over at
    once. While the backend does not answer, the master waits and prints why, even at its start.
    With --spec-key it runs only jobs whose spec is signed with that key, and holds other jobs.

    \b
    Example:  jrs --backend file:///var/lib/jrs master --name m1
    """
    pid1.stay_behind()
    sys.path.insert(0, "")
    stop = threading.Event()
    found = [_resource(text) for text in resources]
    trust = Trust(allowed, spec_key)
    printing = threading.Lock()

    def report(event: Event) -> None:
        with printing:
            if as_json:
                echo_json({**attrs.asdict(event), "master": master.name}, indent=None)
            else:
                job = f"{event.job_id}: " if event.job_id else ""
                echo(f"{when(event.at)}  epoch {event.epoch}  {job}{event.message}")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    outage = Outage(stop, lambda why: echo(f"jrs: {why}; waiting for it", err=True))
    url = place.url
    opened = outage.open(lambda: open_backend(url, cluster=place.cluster))
    if opened is None:
        return
    with opened as backend:
        master = Master(
            backend, url=url, storage=storage, ttl=ttl, name=name, resources=found,
            report=report, max_attempts=max_attempts, trust=trust,
        )  # fmt: skip
        credentials.take()  # The master has read them; its children must not inherit them.
        master.run(stop)


def _resource(text: str) -> Resource:
    try:
        made = entry_point.load(text)()
    except JrsError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{text} must be a function without arguments that returns a jrs.Resource; it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, Resource):
        raise InvalidInput(f"{text} returned a {type(made).__name__}, not a jrs.Resource")
    return made
