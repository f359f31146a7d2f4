"""``jrs init`` and ``jrs config``: the file ``jrs.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from jrs.cli import retention_options
from jrs.cli.common import (
    DEFAULT_TTL,
    ClusterRef,
    echo,
    echo_json,
    json_option,
    storage_name_option,
    table,
    with_cluster,
)
from jrs.cli.toml_file import NAME, path_of_settings, settings
from jrs.contract.errors import InvalidInput
from jrs.contract.storage_place import checked
from jrs.contract.texts import redacted

_TEMPLATE = """\
# Settings of the jrs commands that run in this folder, or with JRS_CONFIG={name}.
# A flag comes first, then the environment, then this file. `jrs config` shows what holds.

# The backend that stores the cluster's records [--backend, JRS_BACKEND]. No password: see
# docs/server-backends.md.
{backend}

# The cluster: its masters and their jobs [--cluster, JRS_CLUSTER].
{cluster}

# The folder of the jobs' files, which all masters share [--storage, JRS_STORAGE]. The backend
# file:// has a default.
{storage}

# Masters: seconds after which a leader that hangs is replaced [--ttl].
# ttl = 15.0

# Masters: most attempts at once [--max-attempts]. The default depends on cores and memory.
# slots = 8

# Masters: how many processes with a Spark session wait for the next attempts of jobs [--warm].
# warm = 0

# Masters: modules that these processes import beforehand [--preload].
# preload = ["etl.jobs"]

# Masters: how long what jobs leave is kept after their end [--retain]: an age such as "30d" or
# "0s" (at once), or "never" to keep it.
[retention]
# results = "never"      # a job whose result is removed still never runs again
# outputs = "never"
# snapshots = "never"    # those that jrs took
# logs = "3d"
# failed-logs = "30d"
# history = "never"      # events of jobs that have not ended, by their own age
# log-bytes-per-stream = "16M"
# log-bytes-per-job = "64M"
# log-bytes-per-cluster = "4096M"
"""


@click.command("init")
@click.option("--file", "path", type=click.Path(path_type=Path, dir_okay=False), default=NAME,
              show_default=True, help="The file to write.")  # fmt: skip
@storage_name_option
@with_cluster
def init_command(ref: ClusterRef, path: Path, storage: str | Path | None) -> int:
    """Write a commented jrs.toml, with the given backend, cluster and storage.

    The jrs commands in its folder then need no options. An existing file is never overwritten.

    \b
    Example:  jrs --backend file:///var/lib/jrs init
    """
    if ref.backend is not None and redacted(ref.backend) != ref.backend:
        raise InvalidInput(
            "the backend's URL has a password or a query: a file is no place for them; leave them "
            "to the environment (docs/server-backends.md)"
        )
    text = _TEMPLATE.format(
        name=path,
        backend=_line("backend", ref.backend, "file:///var/lib/jrs"),
        cluster=_line("cluster", None if ref.cluster == "default" else ref.cluster, "default"),
        storage=_line("storage", None if storage is None else str(checked(storage)),
                      "/srv/jrs-files"),
    )  # fmt: skip
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidInput(f"{path} exists; it is not overwritten") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
    echo(f"wrote {path}", err=True)
    return 0


@click.command("config")
@storage_name_option
@json_option
@with_cluster
@click.pass_context
def config_command(
    ctx: click.Context, ref: ClusterRef, storage: str | Path | None, as_json: bool
) -> int:
    """Show the settings that hold here, and where each comes from.

    A flag comes first, then the environment, then jrs.toml in the current folder or the file that
    JRS_CONFIG names. Secrets are left out.

    \b
    Example:  jrs config
    """
    found = [
        ("backend", ref.backend and redacted(ref.backend), _source(ctx, "backend")),
        ("cluster", ref.cluster, _source(ctx, "cluster")),
        ("storage", None if storage is None else str(storage), _source(ctx, "storage")),
        *_of_masters(),
    ]
    if as_json:
        echo_json({name: {"value": value, "source": source} for name, value, source in found})
        return 0
    rows = [[name, "-" if value is None else str(value), source] for name, value, source in found]
    table(["SETTING", "VALUE", "FROM"], rows)
    return 0


def _of_masters() -> Iterator[tuple[str, Any, str]]:
    """Yield the settings of masters that have no variable in the environment."""
    given, path = settings(), str(path_of_settings())
    yield "ttl", given.get("ttl", DEFAULT_TTL), path if "ttl" in given else "default"
    yield "slots", given.get("slots"), path if "slots" in given else "default: by cores and memory"
    yield "warm", given.get("warm", 0), path if "warm" in given else "default"
    modules = ", ".join(given.get("preload", ())) or "none"
    yield "preload", modules, path if "preload" in given else "default"
    retained = given.get("retention", {})
    policy = retention_options.retention(retained)
    for name, field in (*retention_options.AGES.items(), *retention_options.SIZES.items()):
        value = getattr(policy if name in retention_options.AGES else policy.limits, field)
        said = retained.get(name) or (_age(value) if name in retention_options.AGES else str(value))
        yield f"retention.{name}", said, path if name in retained else "default"


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds / 86400:g}d"


def _source(ctx: click.Context, name: str) -> str:
    """Return where the value of an option of this command, or of `jrs` itself, comes from."""
    assert ctx.parent is not None
    sources = {ctx.get_parameter_source(name), ctx.parent.get_parameter_source(name)}
    if ParameterSource.COMMANDLINE in sources:
        return f"--{name}"
    if ParameterSource.ENVIRONMENT in sources:
        return f"JRS_{name.upper()}"
    return str(path_of_settings()) if name in settings() else "default"


def _line(name: str, value: str | None, example: str) -> str:
    text = f"{name} = {json.dumps(value or example, ensure_ascii=False)}"
    return text if value is not None else f"# {text}"
