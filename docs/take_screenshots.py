"""Take the pictures of docs/sidecar.md: real masters, a real server, Chromium.

    python docs/take_screenshots.py [FOLDER]

Debian's package `chromium` is needed. Without a folder, the six pictures of the documentation are
renewed; with one, every page is taken in every form: wide and narrow, light and dark, with and
without JavaScript. That takes some ten minutes, and screenshot_scenes.py makes more scenes for it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import screenshot_scenes as scenes

from jrs import Client, RestartPolicy, connect
from jrs.contract.operations import Fence
from jrs.host.listening import Address
from jrs.sidecar.serving import Guards, serve
from jrs.testing.masters import Masters
from jrs.testing.servers.ports import Ports

JOBS = '''
import time
from pathlib import Path

def hourly(job, hold):
    """Three stages; waits in the second and in the third one."""
    print(f"attempt {job.attempt} in epoch {job.epoch}")
    job.stage("ingest", lambda stage: time.sleep(1.5))
    for name in ("clean", "join"):
        def work(stage):
            time.sleep(2)
            files = [Path(hold, f"{name}-{job.attempt}"), Path(hold, "all")]
            while not any(file.exists() for file in files):
                time.sleep(0.05)
        job.stage(name, work)
    return {"rows": 336776, "carriers": 16}

def waits(job, hold):
    print("reads 14 partitions")
    while not Path(hold, "all").exists():
        time.sleep(0.05)

def report(job, day):
    print(f"report of {day}")
    if day.endswith("3"):
        raise ValueError(f"no flights on {day}: the file of the carrier has not arrived")
    return {"day": day, "rows": 842}
'''
TOKEN = "operate-for-the-pictures"


@attrs.frozen
class Form:
    """How a page is looked at."""

    width: int = 1280
    height: int = 900
    dark: bool = False
    script: bool = True

    def __str__(self) -> str:
        shade = "dark" if self.dark else "light"
        return f"{self.width}-{shade}{'' if self.script else '-noscript'}"


FORMS = [
    Form(width, height, dark, script)
    for width, height in ((1280, 1400), (390, 1700))
    for dark in (False, True)
    for script in (True, False)
]
"""Each width, in each shade, with and without JavaScript; high enough for most pages."""


class Camera:
    """Takes pictures of a server's pages."""

    def __init__(self, port: int, folder: Path, forms: list[Form]) -> None:
        self._port = port
        self._folder = folder
        self._forms = forms

    def take(self, name: str, path: str, only: Form | None = None) -> None:
        """Take a page in each form, or in one."""
        for form in self._forms if only is None else [only]:
            suffix = "" if only is not None else f"-{form}"
            self._take(f"http://127.0.0.1:{self._port}{path}", f"{name}{suffix}.png", form)

    def _take(self, url: str, file: str, form: Form) -> None:
        settings = f"preferredColorScheme={0 if form.dark else 1}"
        # The proxy hides the script from those that ask it by this name.
        url = url if form.script else url.replace("127.0.0.1", "localhost")
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={profile}", f"--window-size={form.width},{form.height}",
                    f"--blink-settings={settings}", "--timeout=60000",
                    f"--screenshot={self._folder / file}", url,
                ],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
        print(self._folder / file)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


@contextmanager
def served(client: Client, folder: Path) -> Iterator[int]:
    """Serve the cluster; yield the port of a proxy that knows the token."""
    ports = Ports()
    port, front = ports.take(), ports.take()
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(f"operate {TOKEN}\n")
    stop, ready = threading.Event(), threading.Event()
    address = Address.of(f"127.0.0.1:{port}")
    guards = Guards(tokens)
    server = threading.Thread(
        target=lambda: serve(client, address, guards, stop, lambda at: ready.set())
    )
    proxy = threading.Thread(target=lambda: asyncio.run(forward(front, port, stop)))
    server.start()
    proxy.start()
    ready.wait(60)
    try:
        yield front
    finally:
        stop.set()
        server.join()
        proxy.join()


async def forward(front: int, port: int, stop: threading.Event) -> None:
    """Forward each request with the token: Chromium cannot send it by itself."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def gone(reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        line, _, rest = head.partition(b"\r\n")
        if b"localhost" in rest and b"/static/jrs.js" in line:
            line = line.replace(b"jrs.js", b"none.js")
        there, back = await asyncio.open_connection("127.0.0.1", port)
        rest = rest.replace(b"Connection: keep-alive", b"Connection: close")
        back.write(line + f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode() + rest)
        # A stream of events ends with the browser, and not by itself.
        ends = {asyncio.ensure_future(one) for one in (pump(there, writer), gone(reader))}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for one in ends:
            one.cancel()
        back.close()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", front):
        while not stop.is_set():
            await asyncio.sleep(0.1)


def play(folder: Path, camera: Callable[[int], Camera], pictures: bool) -> None:
    """Have something of each kind happen, and take the pictures of it."""
    (folder / "flights.py").write_text(JOBS)
    hold = folder / "hold"
    hold.mkdir()
    url = (folder / "store").as_uri()
    entry = f"{folder / 'flights.py'}:"
    arguments = {"hold": str(hold)}
    with ExitStack() as stack:
        masters = stack.enter_context(
            Masters(url, storage=folder / "jobs", ttl=5, options=["--max-attempts", "3"])
        )
        client = stack.enter_context(connect(url, storage=folder / "jobs"))
        cam = camera(stack.enter_context(served(client, folder)))
        for name in ("m1", "m2", "m3"):
            masters.start(name)
        until(lambda: client.leader().leader, "one leads")
        if pictures:
            cam.take("overview-empty", "/")
        report(client, entry)
        client.submit(f"{entry}hourly", id="hourly-delays", arguments=arguments, tags=["team=ops"])
        job = client.job("hourly-delays")
        until(lambda: len(job.view().stages) == 1, "the first stage")
        client.submit(f"{entry}waits", id="carriers", arguments=arguments, tags=["team=ops"])
        if pictures:
            cam.take("overview-running", "/")
        for attempt in (1, 2):
            time.sleep(20 if pictures else 2)  # Longer, as the failover before is.
            if attempt == 1 and pictures:
                fail_over(masters, client, cam)
            else:
                masters.leader().kill()
            until(lambda: len(job.view().attempts) == attempt + 1, "the next attempt")  # noqa: B023
            (hold / f"clean-{attempt + 1}").touch()
            until(lambda: len(job.view().stages) == attempt, "its stage")  # noqa: B023
        masters.start("m4")
        client.submit("etl.nowhere:load", id="load-orders", arguments={}, tags=["team=sales"])
        until(lambda: client.job("load-orders").explain().action.value == "hold", "it is held")
        for name in ("airports", "planes"):
            client.submit(f"{entry}waits", id=name, arguments=arguments)
        time.sleep(6)
        take_what_runs(cam, pictures)
        if pictures:
            end(masters, client, cam, hold)


def report(client: Client, entry: str) -> None:
    """Run a job for each of some days. A few fail."""
    for day in range(1, 13):
        client.submit(f"{entry}report", id=f"report-2026-11-{day:02}", day=f"2026-11-{day:02}",
                      tags=["daily"], restart=RestartPolicy(attempts=1))  # fmt: skip
    until(lambda: len(list(client.jobs(since=0))) == 12, "the reports have ended")


def fail_over(masters: Masters, client: Client, cam: Camera) -> None:
    """Kill the leader, and take the pictures of the time until another one leads."""
    with scenes.leaderless(masters, client):
        cam.take("failover-no-leader", "/")
        cam.take("failover-no-leader-job", "/jobs/hourly-delays")
        with scenes.recovering(client):
            until(lambda: client.leader().elected, "it is elected")
            cam.take("failover-elected", "/")
            cam.take("failover-elected-job", "/jobs/hourly-delays")


def take_what_runs(cam: Camera, pictures: bool) -> None:
    """Take what has come of the failovers, and what is held: for the documentation, or all."""
    if pictures:
        for name, path in (("overview", "/"), ("job", "/jobs/hourly-delays"), ("jobs", "/jobs"),
                           ("held", "/jobs/load-orders"), ("failed", "/jobs/report-2026-11-03"),
                           ("none", "/jobs/nothing")):  # fmt: skip
            cam.take(name, path)
        return
    cam.take("overview", "/", Form(height=1150))
    cam.take("job", "/jobs/hourly-delays", Form(height=1060))
    cam.take("held", "/jobs/load-orders", Form(height=800))
    cam.take("jobs", "/jobs", Form(dark=True, height=700))
    cam.take("phone", "/", Form(390, 844))
    cam.take("phone-dark", "/jobs/hourly-delays", Form(390, 844, dark=True))


def end(masters: Masters, client: Client, cam: Camera, hold: Path) -> None:
    """Have no master for a while, and then all jobs end."""
    for master in masters.all:
        master.kill()
    time.sleep(16)  # Until their heartbeats count no more.
    cam.take("nobody-leads", "/")
    masters.start("m5")
    until(lambda: client.leader().leader, "m5 leads")
    (hold / "all").touch()
    for name in ("hourly-delays", "carriers", "airports", "planes"):
        until(lambda: client.results.has_clean(name), f"{name} is clean")  # noqa: B023
    cam.take("job-ended", "/jobs/hourly-delays")


def second_epoch(stack: ExitStack, folder: Path, name: str) -> tuple[Client, Fence]:
    """Return a client of a new cluster, and the fence of its second leader."""
    client = stack.enter_context(connect((folder / name).as_uri(), cluster=name))
    with scenes.leading(client, "m1"):
        pass  # The first epoch; the second is that of the newest attempts.
    return client, stack.enter_context(scenes.leading(client, "m2"))


def play_alone(folder: Path, camera: Callable[[int], Camera]) -> None:
    """Take the pictures of what is written without masters, each in a cluster of its own."""
    with ExitStack() as stack:
        client, fence = second_epoch(stack, folder, "streams")
        scenes.draining(client, fence)
        cam = camera(stack.enter_context(served(client, folder)))
        for form in FORMS:
            scenes.commit_batch(client, fence)
            cam.take(f"draining-{form}", "/jobs/live-delays", form)
        cam.take("overview-draining", "/")
    with ExitStack() as stack:
        client = stack.enter_context(connect((folder / "archive").as_uri(), cluster="archive"))
        fence = stack.enter_context(scenes.leading(client, "m1"))
        scenes.archive(client, fence)
        cam = camera(stack.enter_context(served(client, folder)))
        cam.take("archive", "/")
        cam.take("archive-jobs", "/jobs")
        cam.take("archive-failed", "/jobs?status=FAILED&order=ended")
        cam.take("archive-page", "/jobs?after=load-1234-20")
        cam.take("archive-healthy-job", "/jobs/load-1234-20")
    with ExitStack() as stack:
        client, fence = second_epoch(stack, folder, "odd")
        scenes.odd(client, fence)
        cam = camera(stack.enter_context(served(client, folder)))
        cam.take("odd", "/")
        cam.take("odd-jobs", "/jobs")
        job_ids = [view.job_id for view in client.views()]
        for name, job_id in zip(("held", "failed", "runs"), job_ids, strict=True):
            cam.take(f"odd-{name}", f"/jobs/{job_id}")


def main() -> None:
    """Take the pictures of the documentation, or all of them in a folder."""
    if shutil.which("chromium") is None:
        sys.exit("chromium is missing: apt-get install chromium")
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    target.mkdir(parents=True, exist_ok=True)
    # A timeout's SIGTERM must end the masters, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        pictures = len(sys.argv) > 1

        def camera(port: int) -> Camera:
            return Camera(port, target.absolute(), FORMS)

        play(Path(folder), camera, pictures)
        if pictures:
            play_alone(Path(folder), camera)


if __name__ == "__main__":
    main()
