"""Masks: no text that jrs stores or prints shows the value of a job's secret.

The process of an attempt hides the values of its own job, a master those of the jobs that it runs.
The code that makes a text to be stored masks it, and `jrs.contract.texts` masks what is printed.
What is read from the store is not masked: a short value may occur in texts of other jobs, which
have to stay as they are.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

MASK = "***"

_LINE = 8
"""Characters of the shortest line that is masked by itself, of a value of several lines."""

_lock = threading.Lock()
_hidden: Counter[str] = Counter()
_pattern: re.Pattern[str] | None = None


def hide(values: Iterable[str]) -> Callable[[], None]:
    """Mask these values in every text of this process, until the returned function is called."""
    forms = [form for value in values for form in {*_forms(value)}]
    _change(_hidden.update, forms)
    return lambda: _change(_hidden.subtract, forms)


def masked(text: str) -> str:
    """Return `text` with ``***`` in place of each hidden value."""
    return text if _pattern is None else _pattern.sub(MASK, text)


def longest() -> int:
    """Return the length of the longest hidden value, in characters."""
    with _lock:
        return max(map(len, _hidden), default=0)


class Stream:
    """Masks hidden values in a stream of bytes that arrives in parts."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on; an end that may begin a hidden value is held back."""
        data = self._held + data
        with _lock:
            forms = sorted((form.encode(errors="replace") for form in _hidden), key=len)
        for form in reversed(forms):
            data = data.replace(form, MASK.encode())
        keep = max((_begun(form, data) for form in forms), default=0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return what was held back: the stream has ended."""
        rest, self._held = self._held, b""
        return rest


def _begun(form: bytes, data: bytes) -> int:
    """Return how many bytes at the end of `data` are the beginning of `form`."""
    return next((n for n in range(min(len(form), len(data)), 0, -1) if data.endswith(form[:n])), 0)


def _change(change: Callable[[list[str]], None], forms: list[str]) -> None:
    global _pattern
    with _lock:
        change(forms)
        for form in [form for form, times in _hidden.items() if times <= 0]:
            del _hidden[form]
        ordered = sorted(_hidden, key=len, reverse=True)  # A value may contain another one.
        _pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it may appear in texts: as it is, escaped, and line by line."""
    yield from (text for text in (value, value.strip()) if text)
    yield from (text for text in (json.dumps(value)[1:-1], repr(value)[1:-1]) if text)
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines) if len(line) >= _LINE)
