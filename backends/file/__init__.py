"""The file backend: a shared log in a folder, without a server and without locks on writing."""

from .backend import FileBackend, open_file

__all__ = ["FileBackend", "open_file"]
