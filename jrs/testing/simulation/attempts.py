"""Attempts as simulated processes, which may outlive their masters for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.operations import Fence
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.launch import EXIT_DIED, EXIT_INTERRUPTED
from jrs.recovery.attempt.run import run_attempt
from jrs.recovery.attempt.runners import AttemptExit, OnEnd, Runner, RunningAttempt
from jrs.testing.simulation.scheduler import Process
from jrs.testing.simulation.setting import Setting


class SimRunner(Runner):
    """Starts attempts as processes of the setting."""

    def __init__(self, setting: Setting, started: list[SimAttempt], master: Process) -> None:
        self._setting = setting
        self._started = started
        self._master = master

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        self._setting.scheduler.switch(("start", context.job_id))
        return SimAttempt(self._setting, self._started, self._master, context, on_end)


class SimAttempt(RunningAttempt):
    """An attempt in a process of its own. It may outlive its master for a while."""

    def __init__(
        self,
        setting: Setting,
        started: list[SimAttempt],
        master: Process,
        context: AttemptContext,
        on_end: OnEnd,
    ) -> None:
        self.master = master
        self._setting = setting
        self._on_end = on_end
        self.process = Process(f"{context.job_id}.e{context.epoch}.a{context.attempt}")
        backend = setting.open(self.process)
        self._context = attrs.evolve(context, backend=backend, lost=threading.Event())
        started.append(self)
        setting.scheduler.spawn(self.process, self._run, self.process.name)

    @property
    def fence(self) -> Fence:
        """The condition under which it writes, in every commit."""
        return self._context.fence

    def _run(self) -> None:
        how = AttemptExit()
        try:
            run_attempt(self._context)
        except Fenced as error:
            how = AttemptExit(str(error), fenced=True)
        except (Unavailable, OutcomeUnknown) as error:
            how = AttemptExit(str(error), exit_status=EXIT_INTERRUPTED, interrupted=True)
        except Exception as error:
            how = AttemptExit(f"{type(error).__name__}: {error}", exit_status=EXIT_DIED)
        self._setting.scheduler.switch(("exit", self.process.name))
        self._setting.say(f"{self.process.name} ends: {how.message or 'completed'}")
        self._setting.scheduler.uses("w", self.process.life)
        self.process.alive = False
        self._tell(how)

    def end(self, deadline: Deadline) -> bool:
        self._setting.scheduler.switch(("end", self.process.name))
        self._setting.scheduler.uses("w", self.process.life)
        self._setting.scheduler.saw(self.process.alive)
        if self.process.alive:
            self._setting.store.kill(self.process)
            self.has_ended()
        return True

    def has_ended(self) -> None:
        """Tell the master, if it lives, that the process was killed."""
        self._tell(AttemptExit("its process was killed by signal 9", exit_status=-9))

    def end_late(self) -> None:
        """End, some time after the master has died."""
        self._setting.rest(600, "watchdog", self.process.name)
        self._setting.scheduler.uses("w", self.process.life)
        if self.process.alive:
            self._setting.say(f"{self.process.name} is ended by its watchdog")
            self._setting.store.kill(self.process)

    def _tell(self, how: AttemptExit) -> None:
        if self.master.alive:
            told = lambda: self._on_end(how)  # noqa: E731 - used once
            self._setting.scheduler.spawn(self.master, told, "waiter")
