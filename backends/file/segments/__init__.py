"""Segments: the files of a log, each named by its offset in the whole log.

A segment of format 3, the form after the cluster's format was raised::

    <offset>.tail     the commits; its first line has the offset and the identity of the log
    <offset>.segment  the header: the same, and the runs; tail and header each show that the other
                      is lost or damaged
    <offset>.run      the records that were live when the segment began (not for the first one);
                      since format 7, the changes since the other runs that the header names

A segment begins with its tail and a header without runs. Until its run is written, the segment
*continues* the previous one, and readers of the folder read both. Then a rename replaces the header
by one that names the runs, and the earlier segments are removed, except the runs that it names.

A segment of format 2, the form of the first releases, has ``<offset>.log``, ``<offset>.base`` (not
for the first one) and ``<offset>.index``.

A process that knows only format 2 may have slept with the folder open. It must neither continue
behind the first segment that it cannot read nor write one. `FENCE` stops it: this file is the base
of a segment above all others, which has no log. No other code reads the file.
"""

from .begin import create, write_base
from .forms import VERSION_KEY, Form, form_at, form_in
from .header import Header
from .names import FENCE, discard_begun, log_path, newest, sweep
from .open import Segment, open_newest, open_next
from .suspects import Suspects

__all__ = [
    "FENCE",
    "VERSION_KEY",
    "Form",
    "Header",
    "Segment",
    "Suspects",
    "create",
    "discard_begun",
    "form_at",
    "form_in",
    "log_path",
    "newest",
    "open_newest",
    "open_next",
    "sweep",
    "write_base",
]
