"""``jrs master``: the process that campaigns and, while it leads, runs the submitted jobs."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import attrs
import click

from jrs.cli import pid1, retention_options
from jrs.cli.common import (
    DEFAULT_TTL,
    ClusterRef,
    StorageType,
    echo,
    echo_json,
    import_from_here,
    spec_keys_option,
    when,
    with_cluster,
)
from jrs.cli.durations import DURATION
from jrs.cli.listening import LISTEN
from jrs.cli.log_format import JSON, log_format_option
from jrs.cli.toml_file import from_file, settings
from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput, JrsError, Unavailable
from jrs.contract.texts import error_text
from jrs.host import credentials
from jrs.host.filesystems import STORAGE
from jrs.host.listening import Address
from jrs.host.signals import stopped_by_signals
from jrs.records.policies import MOST
from jrs.records.signing import SpecKey
from jrs.recovery.attempt import entry_point
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.server import HealthServer
from jrs.recovery.leader.backend_outage import Outage
from jrs.recovery.leader.trust import Trust
from jrs.recovery.master import Master
from jrs.recovery.rules.events import Event
from jrs.recovery.rules.resource import Resource
from jrs.store import applications
from jrs.store.opening import open_backend


@click.command(
    "master",
    epilog="Start several masters, also on several hosts: one leads, and the others stand by to "
    "take over.",
)
@click.option("--name", help="This master's name  [default: host, pid and random letters]")
@click.option("--ttl", type=DURATION, metavar="DURATION", default=from_file("ttl", DEFAULT_TTL),
              help=f"After this time, a leader that hangs is replaced.  "
              f"[default: {DEFAULT_TTL:g}s]")  # fmt: skip
@click.option("--storage", type=StorageType(), metavar="FOLDER|URL",
              envvar=STORAGE, show_envvar=True, default=from_file("storage"),
              help="The folder of the jobs' files, which all masters share; or the URL of objects, "
              "such as s3://BUCKET/PREFIX.")  # fmt: skip
@click.option("--resource", "resources", multiple=True, metavar="MODULE:FUNCTION",
              help="A function that returns a jrs.Resource, which is cleaned up after each job, "
                   "too. Repeatable.")  # fmt: skip
@click.option("--max-attempts", type=click.IntRange(1, MOST), metavar="N",
              default=from_file("slots"),
              help="The slots of this master while it leads. An attempt takes one, or as many as "
              "its job asks for. Other jobs wait, by priority and then by submission.  "
              "[default: by cores and memory]")  # fmt: skip
@click.option("--cleanup-retries", type=click.IntRange(0, MOST), metavar="N",
              help="Give up the cleanup of a job after this many retries; its result stays dirty.  "
              "[default: never]")  # fmt: skip
@click.option("--cleanup-max-delay", type=DURATION, default="1h", show_default=True,
              metavar="DURATION",
              help="The longest pause between two tries of a cleanup. The first pause takes one "
              "second, each further one twice as long.")  # fmt: skip
@click.option("--retain", "retained", multiple=True, metavar="NAME=VALUE",
              help="How long results, outputs, snapshots, logs or failed-logs are kept after a "
              "job's end: 30d, 0s or never (a number alone is seconds); or the history of a job "
              "that has not ended, by the age of its events; or a limit, such as "
              "log-bytes-per-job=64M. Repeatable.")  # fmt: skip
@click.option("--prepare", is_flag=True,
              help="When this host is idle, make the archive with which Spark starts faster, as "
                   "jrs prepare does.")  # fmt: skip
@click.option("--warm", type=click.IntRange(0, MOST), metavar="N", default=from_file("warm", 0),
              help="Keep N processes with a Spark session prepared for jobs that run: a job that "
              "fails over, or is tried again, then starts without waiting for Spark.  "
              "[default: 0]")  # fmt: skip
@click.option("--preload", multiple=True, metavar="MODULE", default=from_file("preload", ()),
              help="Have the processes of --warm import this module, such as the module of your "
                   "jobs. Its top-level code then runs before the process has a "
                   "job. Repeatable.")  # fmt: skip
@click.option("--openlineage", is_flag=True,
              help="While leading, report to OpenLineage when each attempt started, and how it "
                   "ended. OPENLINEAGE_URL or OPENLINEAGE_CONFIG name the receiver.")  # fmt: skip
@click.option("--allow-entry", "allowed", multiple=True, metavar="PATTERN",
              help="Run only jobs whose module or file matches this shell pattern, such as 'etl.*' "
              "or '/opt/jobs/*'; hold other jobs. Repeatable.")  # fmt: skip
@click.option("--listen", "listens", type=LISTEN, metavar="unix:PATH|HOST:PORT",
              help="Answer /livez, /readyz, /leader, /standby and /metrics at this socket or "
                   "port.")  # fmt: skip
@spec_keys_option
@log_format_option
@click.option("--json", "as_json", is_flag=True, help="The same as --log-format json.")
@with_cluster
def master_command(
    ref: ClusterRef,
    name: str | None,
    ttl: float,
    storage: str | Path | None,
    resources: tuple[str, ...],
    max_attempts: int | None,
    cleanup_retries: int | None,
    cleanup_max_delay: float,
    retained: tuple[str, ...],
    prepare: bool,
    warm: int,
    preload: tuple[str, ...],
    openlineage: bool,
    allowed: tuple[str, ...],
    listens: Address | None,
    spec_keys: tuple[SpecKey, ...],
    log_format: str,
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
    import_from_here()
    stop = threading.Event()
    found = [_resource(text) for text in resources]
    trust = Trust(allowed, next(iter(spec_keys), None), spec_keys[1:])
    policy = CleanupPolicy.of(retries=cleanup_retries, max_delay=cleanup_max_delay)
    retention = retention_options.retention(
        {**settings().get("retention", {}), **retention_options.pairs(retained)}
    )
    as_json = as_json or log_format == JSON
    printing = threading.Lock()

    def report(event: Event) -> None:
        with printing:
            _print_event(event, master.name, as_json)

    outage = Outage(stop, partial(_say_that_it_waits, as_json))
    health = MasterHealth()
    # Before the backend is opened: a master that waits for it is alive.
    probes = nullcontext() if listens is None else HealthServer(listens, health)
    with probes, stopped_by_signals(stop):
        opened = outage.open(lambda: open_backend(ref.url, cluster=ref.cluster))
        if opened is None:
            return
        with opened as backend:
            _warn_of_applications(backend, as_json)
            master = Master(
                backend, url=ref.url, storage=storage, ttl=ttl, name=name, resources=found,
                cleanup_policy=policy, report=report, max_attempts=max_attempts, trust=trust,
                retention=retention, prepare=prepare, warm=warm, health=health,
                preload=preload, openlineage=openlineage,
            )  # fmt: skip
            credentials.take()  # The master has read them; its children must not inherit them.
            master.run(stop)


def _warn_of_applications(backend: Backend, as_json: bool) -> None:
    names = list[str]()
    with suppress(Unavailable):  # The master waits for it.
        names = applications.waiting(backend)
    for name in names:
        _say(
            as_json,
            "warning",
            f"the application {name!r} has not ended, and does not run while this master leads: "
            "stop it, and start the program of the application again",
        )


def _print_event(event: Event, master: str, as_json: bool) -> None:
    if as_json:
        echo_json({**attrs.asdict(event), "master": master}, indent=None)
    else:
        job = f"{event.job_id}: " if event.job_id else ""
        echo(f"{when(event.at)}  epoch {event.epoch}  {job}{event.message}")


def _say_that_it_waits(as_json: bool, why: str) -> None:
    _say(as_json, "waiting", f"{why}; waiting for it")


def _say(as_json: bool, kind: str, text: str) -> None:
    said = f"jrs: {text}"
    if as_json:
        line = {"at": time.time(), "kind": kind, "message": said}
        echo_json(line, indent=None, err=True)
    else:
        echo(said, err=True)


def _resource(text: str) -> Resource:
    try:
        made = entry_point.load(text)()
    except JrsError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{text} must be a function without arguments that returns a jrs.Resource; it raised "
            f"{error_text(error)}"
        ) from error
    if not isinstance(made, Resource):
        raise InvalidInput(f"{text} returned a {type(made).__name__}, not a jrs.Resource")
    return made
