"""The options of ``jrs submit`` for a job's place in the queue, its limits and its settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from jrs.cli.durations import ABOVE_ZERO, DURATION
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.on_result import OnResult
from jrs.records.policies import MOST
from jrs.records.settings import JobSettings, check_conf_key, local_path, properties_in
from jrs.records.time_limits import OnTimeout, TimeLimits

T = TypeVar("T")
_FILE = click.Path(path_type=Path, dir_okay=False)

_QUEUE = (
    click.option("--priority", type=click.IntRange(-MOST, MOST), default=0, show_default=True,
                 help="Of the jobs that wait, a higher priority starts first. A running job is "
                 "never stopped for another one."),
    click.option("--slots", type=click.IntRange(1, MOST), default=1, show_default=True,
                 help="How many of the master's slots (--max-attempts) the job takes."),
    click.option("--tag", "tags", multiple=True, metavar="TAG",
                 help="A text to find the job by, such as nightly or team=sales. Repeatable."),
    click.option("--timeout", "limit", type=ABOVE_ZERO, metavar="DURATION",
                 help="How long the job may run, over all attempts: 90s, 30m, 12h. Not how long "
                 "--wait waits."),
    click.option("--attempt-timeout", "attempt_limit", type=ABOVE_ZERO, metavar="DURATION",
                 help="How long each attempt may run."),
    click.option("--on-timeout", type=click.Choice([each.value for each in OnTimeout]),
                 default=OnTimeout.FAIL.value, show_default=True,
                 help="What a time-out of the job, an attempt or a stage does: end the job as "
                 "FAILED, or count as a death, so that --attempts decides."),
)  # fmt: skip

_SETTINGS = (
    click.option("--conf", "confs", multiple=True, metavar="KEY=VALUE",
                 help="A setting of Spark. Repeatable."),
    click.option("--properties-file", type=_FILE, metavar="FILE",
                 help="More settings of Spark, in the form of spark-defaults.conf."),
    click.option("--packages", multiple=True, metavar="GROUP:ARTIFACT:VERSION",
                 help="Packages for the JVM, comma-separated. Repeatable."),
    click.option("--jars", multiple=True, metavar="PATH",
                 help="Jars for the JVM, on the master's host, comma-separated. Repeatable."),
    click.option("--py-files", multiple=True, metavar="PATH",
                 help="Modules (.py, .zip, .egg) on the master's host, comma-separated. "
                 "Repeatable."),
    click.option("--python", default="", metavar="PATH",
                 help="The interpreter of the job's attempts, which must have jrs installed."),
    click.option("--env", "variables", multiple=True, metavar="NAME=VALUE",
                 help="An environment variable of the attempts. Repeatable."),
    click.option("--env-from-file", "env_files", type=_FILE, multiple=True, metavar="FILE",
                 help="More variables: lines of NAME=VALUE. Repeatable."),
    click.option("--secret", "secrets", multiple=True, metavar="NAME=env:VAR|file:PATH",
                 help="An environment variable whose value the master reads from its own "
                 "environment or from a file, and which is stored nowhere. Repeatable."),
)  # fmt: skip

_ON_RESULT = (
    click.option("--on-result", metavar="COMMAND",
                 help="Run a command, or call MODULE:FUNCTION, when the job has ended: it gets the "
                 "result as JSON on its standard input, at least once."),
    click.option("--on-result-deadline", type=DURATION, default="1h", show_default=True,
                 metavar="DURATION", help="Give up --on-result this long after the job's end."),
)  # fmt: skip


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept the options; the command gets them as `given`, fields of a `JobSpec`."""

    @functools.wraps(command)
    def wrapper(
        *args: Any,
        priority: int,
        slots: int,
        tags: tuple[str, ...],
        limit: float | None,
        attempt_limit: float | None,
        on_timeout: str,
        on_result: str | None,
        on_result_deadline: float,
        settings: JobSettings,
        **options: Any,
    ) -> Any:
        given = {
            "priority": priority,
            "slots": slots,
            "tags": tags,
            "timeout": TimeLimits(limit, attempt_limit, OnTimeout(on_timeout)),
            "settings": settings,
            "on_result": None
            if on_result is None
            else OnResult(on_result, deadline=on_result_deadline),
        }
        return command(*args, given=given, **options)

    return _accepting(settings_options(_accepting(wrapper, _ON_RESULT)), _QUEUE)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept the options for what a job runs with; the command gets `settings`."""

    @functools.wraps(command)
    def wrapper(*args: Any, **options: Any) -> Any:
        settings = _settings(**{name: options.pop(name) for name in _OF_SETTINGS})
        return command(*args, settings=settings, **options)

    return _accepting(wrapper, _SETTINGS)


def _accepting(
    command: Callable[..., Any], options: tuple[Callable[..., Any], ...]
) -> Callable[..., Any]:
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


_OF_SETTINGS = (
    "confs", "properties_file", "packages", "jars", "py_files", "python", "variables", "env_files",
    "secrets",
)  # fmt: skip


def _settings(
    confs: tuple[str, ...],
    properties_file: Path | None,
    packages: tuple[str, ...],
    jars: tuple[str, ...],
    py_files: tuple[str, ...],
    python: str,
    variables: tuple[str, ...],
    env_files: tuple[Path, ...],
    secrets: tuple[str, ...],
) -> JobSettings:
    env: dict[str, str] = {}
    for path in env_files:
        env.update(_pairs(f"{path}", _lines(path)))
    env.update(_pairs("--env NAME=VALUE", variables))
    return JobSettings(
        conf={
            **_properties(properties_file),
            **_pairs("--conf KEY=VALUE", confs),
        },
        packages=_each(packages),
        jars=tuple(map(_absolute, _each(jars))),
        py_files=tuple(map(_absolute, _each(py_files))),
        python=python,
        env=env,
        secrets=_pairs("--secret NAME=env:VARIABLE or NAME=file:/path", secrets),
    )


def _pairs(form: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the values by their names. A message shows no value: it may be a secret."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"an equals sign is missing: write {form}")
        if name in found:
            raise InvalidInput(f"{shown(name)} is given twice: {form}")
        found[name] = value
    return found


def _each(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for text in texts for one in text.split(",") if one)


def _absolute(place: str) -> str:
    path = local_path(place)
    return os.path.abspath(path) if path == place else place


def _lines(path: Path) -> list[str]:
    lines = _read(path, lambda: path.read_text().splitlines())
    return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


def _properties(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    found = _read(path, lambda: properties_in(path.read_text()))
    for key in found:
        try:
            check_conf_key(key)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
    return found


def _read(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} cannot be read: not a text in UTF-8") from None
