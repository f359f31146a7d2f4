"""A base: the live records at a seal, one line each, sorted by key and searched in the file."""

from .reader import UNREADABLE, Base

__all__ = ["UNREADABLE", "Base"]
