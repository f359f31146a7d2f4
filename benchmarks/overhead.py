"""What jrs adds to work on Spark: a batch stage, and a batch of a stream, next to Spark alone.

    python benchmarks/overhead.py [--rounds N] [--json]

One job on the file backend and a local disk does all of it in one session, and the contenders take
turns: a small write without jrs and in a stage; a query over files, one file a batch, that Spark
runs alone and that jrs runs, with each kind of sink. What a batch takes is what Spark reports of it
(``triggerExecution``). `format("jrs")` is compared with Spark's file sink, whose rows it replaces.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from measure import Figure, measuring, print_report

from jrs import Job
from jrs.records.model import JobSpec, Json
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters

HERE = Path(__file__)
FILES = 20
"""Batches of a query."""
COLD = 5
"""First batches of a query, and first stages, that do not count."""
STAGES = 20
"""Stages of a round."""
MOST_STAGE, MOST_BATCH = 50.0, 20.0
"""Milliseconds that jrs may add."""
SINKS = ("Spark's file sink", "foreachBatch", "format('jrs')")
ALONE, WITH = "alone", "with jrs"


def work(job: Job, folder: str, rounds: int) -> Json:
    """Return the milliseconds of each stage and batch, by contender."""
    import jrs

    session = jrs.spark(job, {"spark.sql.shuffle.partitions": "2"})
    found: dict[str, list[float]] = {}
    for turn in range(rounds):
        _stages(job, session, Path(folder, f"stages-{turn}"), turn, found)
    rows = Path(folder, "rows")
    for number in range(FILES):
        path = rows / f"{number:03}"
        path.mkdir(parents=True)
        (path / "rows.txt").write_text("\n".join(f"row {number}.{n}" for n in range(100)))
    reported = _Reported(session)
    for turn in range(rounds):
        for number, sink in enumerate(SINKS):
            # The later one finds a warmer JVM: they take turns in that, too.
            for alone in (True, False) if turn % 2 else (False, True):
                if not (alone and sink == SINKS[2]):  # Spark alone does not have it.
                    own = Path(folder, f"alone-{turn}-{number}") if alone else None
                    _query(job, session, rows, sink, f"stream-{turn}-{number}", own)
                    name = f"{sink}, {ALONE if alone else WITH}"
                    found.setdefault(name, []).extend(reported.batches())
    return dict(found)


def _stages(job: Job, session: Any, folder: Path, turn: int, found: dict[str, list[float]]) -> None:
    for number in range(STAGES + COLD):

        def alone(number: int = number) -> None:
            _write(session, folder / str(number))

        def staged(number: int = number) -> None:
            job.stage(
                f"stage-{turn}-{number}", lambda stage: _write(session, stage.output / "rows")
            ).result()

        both = ((f"stage, {ALONE}", alone), (f"stage, {WITH}", staged))
        for name, act in both if number % 2 else both[::-1]:
            began = time.perf_counter()
            act()
            if number >= COLD:
                found.setdefault(name, []).append(1000 * (time.perf_counter() - began))


def _write(session: Any, folder: Path) -> None:
    session.range(0, 1000, 1, 2).write.parquet(str(folder))


def _query(job: Job, session: Any, rows: Path, sink: str, name: str, alone: Path | None) -> None:
    """Run a query to its end with a sink: by Spark alone, in a folder; or by jrs, as a stage."""

    def lines(of: Any) -> Any:
        read = of.readStream.option("maxFilesPerTrigger", 1)
        return read.text(f"{rows}/*").writeStream.trigger(availableNow=True)

    def into(writer: Any, output: Path) -> Any:
        if sink == SINKS[0]:
            return writer.format("parquet").option("path", str(output))
        if sink == SINKS[1]:
            return writer.foreachBatch(_keep)
        return writer.format("jrs")

    if alone is not None:
        writer = into(lines(session), alone / "out").option("checkpointLocation", str(alone / "ck"))
        writer.start().awaitTermination()
    else:
        build = lambda stage: into(lines(stage.spark), stage.output)  # noqa: E731
        job.stream(name, build, bounded=True).result()


def _keep(rows: Any, batch: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


class _Reported:
    """What Spark reports of the batches of one query after the other."""

    def __init__(self, session: Any) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        took: dict[int, float] = {}

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:
                pass

            def onQueryProgress(self, event: Any) -> None:
                if event.progress.numInputRows:
                    took[event.progress.batchId] = event.progress.durationMs["triggerExecution"]

            def onQueryTerminated(self, event: Any) -> None:
                pass

        self._took = took
        session.streams.addListener(Listener())

    def batches(self) -> list[float]:
        """Return the milliseconds of the batches of the query that has just ended."""
        end = time.monotonic() + 30.0
        while len(self._took) < FILES:
            if time.monotonic() > end:
                raise TimeoutError(f"Spark reported {len(self._took)} of {FILES} batches")
            time.sleep(0.01)
        found = [took for _, took in sorted(self._took.items())][COLD:]
        self._took.clear()
        return found


def figures(found: dict[str, list[float]]) -> list[Figure]:
    middle = {name: statistics.median(times) for name, times in found.items()}
    compared = [("stage", "stage", MOST_STAGE)]
    compared += [(SINKS[0], SINKS[0], MOST_BATCH), (SINKS[1], SINKS[1], MOST_BATCH)]
    compared.append((SINKS[2], SINKS[0], MOST_BATCH))
    made = []
    for what, other, most in compared:
        mine, theirs = middle[f"{what}, {WITH}"], middle[f"{other}, {ALONE}"]
        made.append(
            Figure(
                what if what == "stage" else f"a batch, {what}",
                f"{mine:.0f} ms",
                f"{mine - theirs:+.0f} ms to {theirs:.0f} of {other} alone",
                f"< {most:.0f} ms",
                mine - theirs < most,
            )
        )
    return made


@click.command()
@click.option("--rounds", type=int, default=3)
@click.option("--json", "as_json", is_flag=True)
def main(rounds: int, as_json: bool) -> None:
    """Measure what jrs adds to a batch stage and to a batch of a stream."""
    with measuring() as tick, tempfile.TemporaryDirectory(prefix="jrs-overhead-") as name:
        folder = Path(name)
        tick("stages and streams, alone and with jrs in turn")
        masters = Masters((folder / "store").as_uri(), storage=folder / "files")
        with masters:
            masters.start("only")
            arguments: dict[str, Json] = {"folder": str(folder), "rounds": rounds}
            JobCatalog(masters.backend).submit(JobSpec("work", f"{HERE}:work", arguments))
            result = JobResultStore(masters.backend).wait("work", 900.0)
            assert isinstance(result.payload, dict), result.failure
            print_report("what jrs adds", figures(result.payload), as_json)


if __name__ == "__main__":
    main()
