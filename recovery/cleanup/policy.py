"""CleanupPolicy: how an incomplete cleanup is tried again."""

from __future__ import annotations

import attrs
import tenacity

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.policies import check_count, check_seconds


@attrs.frozen
class CleanupPolicy:
    """How an incomplete cleanup is tried again, in tenacity's terms.

    Attributes:
        timeout: seconds after which a pass ends. A resource that has not finished by then counts as
            left, and is not cleaned again before its earlier try has ended. The next pass takes
            the outcome of that try. A pass in which no try has ended uses up no retry, and neither
            does one that only waits for a snapshot that is in use.

    Raises:
        InvalidInput: `wait` or `stop` depends on more than the number of tries (tries are counted
            over all leaders, which share no clock), or `timeout` is not positive.
    """

    wait: tenacity.wait.wait_base = attrs.field(
        factory=lambda: tenacity.wait_exponential(multiplier=1.0, max=3600.0)
    )
    stop: tenacity.stop.stop_base = tenacity.stop_never
    timeout: float = 60.0

    def __attrs_post_init__(self) -> None:
        if type(self.timeout) not in (int, float) or not self.timeout > 0:
            raise InvalidInput(f"a cleanup's timeout must be positive, not {shown(self.timeout)}")
        for name in ("wait", "stop"):
            if not callable(getattr(self, name)):
                raise InvalidInput(
                    f"{name} of a cleanup policy must be an object of tenacity, such as "
                    f"tenacity.{name}_{'exponential' if name == 'wait' else 'after_attempt'}(…), "
                    f"not {shown(getattr(self, name))}"
                )
        try:
            self.delay(1)
            self.is_last(1)
        except RuntimeError as error:
            raise InvalidInput(
                f"a cleanup policy may depend on the number of tries only: {error}"
            ) from None

    @classmethod
    def of(cls, *, retries: int | None = None, max_delay: float = 3600.0) -> CleanupPolicy:
        """Return the policy with so many retries (None: without end), 1, 2, 4, … seconds apart, at
        most `max_delay` seconds.

        Raises:
            InvalidInput: `retries` is below zero, or one of them is no such number.

        Example::

            jrs.CleanupPolicy.of(retries=10, max_delay=300)
        """
        if retries is not None:
            check_count("retries", retries, least=0)
        check_seconds("max_delay", max_delay)
        return cls(
            wait=tenacity.wait_exponential(multiplier=1.0, max=max_delay),
            stop=tenacity.stop_never
            if retries is None
            else tenacity.stop_after_attempt(retries + 1),
        )

    def delay(self, tries: int) -> float:
        """Return the seconds from the end of that pass to the next one."""
        return self.wait(self._state(tries))

    def is_last(self, tries: int) -> bool:
        """Return whether no further pass follows that one."""
        return bool(self.stop(self._state(tries)))

    @staticmethod
    def _state(tries: int) -> tenacity.RetryCallState:
        state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        state.attempt_number = tries
        return state
