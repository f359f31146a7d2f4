"""A base: the live records at a seal, one line each, sorted by key and searched in the file.

A base is read in parts, never loaded. Its index (`index`) has the first key of every block of about
16 KB and the block's checksum. A look-up (`run`) reads one block and trusts it only if the
checksum matches (`blocks`). Damage affects only the keys that the damaged part may have contained.
Reading such a key, a held one, raises `CorruptRecord`; it is never reported as absent. A merge
(`merge`) writes the next base.

A base of format 3 is one run, which ends with its index and a trailer (`run_blocks`); since format
7 there are several (`base`), each with the changes since the one below it (`entries`). In format 2
its one run has its index in a second file (`two_file_blocks`).
"""

from .base import Base
from .record_lines import UNREADABLE
from .run import Run

__all__ = ["UNREADABLE", "Base", "Run"]
