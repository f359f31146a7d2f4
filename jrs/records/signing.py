"""Signed specs: an HMAC with a key that masters and submitters share.

A master that has a key runs only jobs whose spec was signed with it, so that write access to the
backend alone is not enough to make it run code. The signature is over all that the spec's
record says, fields of later versions included, and is kept in the record itself.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any, Self

from jrs.contract.errors import InvalidInput
from jrs.records.codec import fields_of, with_fields

SIGNATURE = "signature"
_LEAST = 32
_DOMAIN = b"jrs spec 1\0"


class SpecKey:
    """The key that specs are signed with. No message, log or `repr` shows it.

    Raises:
        InvalidInput: it has less than 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < _LEAST:
            raise InvalidInput(f"a key for specs has at least {_LEAST} bytes, not {len(key)}")
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the key in a file: its bytes, but for white space at the end.

        Raises:
            InvalidInput: it cannot be read, or others than its owner and group can read it, or it
                is too short.
        """
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                key = file.read().rstrip()
        except OSError as error:
            raise InvalidInput(f"the spec key {path} cannot be read: {error.strerror}") from None
        if mode & 0o007:
            raise InvalidInput(f"every user can read the spec key {path}: chmod o= {path}")
        if len(key) < _LEAST:
            raise InvalidInput(
                f"the spec key {path} has {len(key)} bytes, of {_LEAST} at least; to make one: "
                f"openssl rand -hex 32 > {path}"
            )
        return cls(key)

    def sign(self, spec: bytes, where: str) -> bytes:
        """Return the record of a spec with its signature.

        Raises:
            CorruptRecord: it is no record.
        """
        return with_fields(spec, where, **{SIGNATURE: self._of(fields_of(spec, where))})

    def has_signed(self, spec: bytes, where: str) -> bool:
        """Return whether the record of a spec was signed with this key and is as it was then.

        Raises:
            CorruptRecord: it is no record.
        """
        fields = fields_of(spec, where)
        found = fields.get(SIGNATURE)
        return isinstance(found, str) and hmac.compare_digest(
            found.encode("utf-8", "replace"), self._of(fields).encode()
        )

    def __repr__(self) -> str:
        return "SpecKey(…)"

    def _of(self, fields: dict[str, Any]) -> str:
        signed = {name: value for name, value in fields.items() if name != SIGNATURE}
        text = json.dumps(signed, sort_keys=True, separators=(",", ":")).encode("ascii")
        return hmac.new(self._key, _DOMAIN + text, hashlib.sha256).hexdigest()


def is_signed(spec: bytes, where: str) -> bool:
    """Return whether the record of a spec has a signature, with whatever key.

    Raises:
        CorruptRecord: it is no record.
    """
    return bool(fields_of(spec, where).get(SIGNATURE))


def renewed(changed: bytes, before: bytes, key: SpecKey | None, job_id: str) -> bytes:
    """Return the record of a changed spec, signed if the one before was.

    What was not signed with the key before is not signed by the way: nobody has looked at it.

    Raises:
        InvalidInput: it is signed and there is no key, or it is not signed with that key.
    """
    where = f"the spec of job {job_id!r}"
    if key is None:
        check_key(before, key, job_id)
        return changed
    if not key.has_signed(before, where):
        raise InvalidInput(
            f"{where} is not signed with this key: look at it: jrs show {job_id}; then: "
            f"jrs sign {job_id}"
        )
    return key.sign(changed, where)


def check_key(spec: bytes, key: SpecKey | None, job_id: str) -> None:
    """Raise `InvalidInput` if a spec is signed and there is no key to sign it again."""
    if key is None and is_signed(spec, f"the spec of job {job_id!r}"):
        raise InvalidInput(
            f"the spec of job {job_id!r} is signed, and would not be any more: give the key that "
            "the masters have, --spec-key FILE"
        )
