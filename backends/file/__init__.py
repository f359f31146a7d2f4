"""The file backend: a shared log in a folder. No server, no lock a paused process could hold."""

from .backend import FileBackend, open_file

__all__ = ["FileBackend", "open_file"]
