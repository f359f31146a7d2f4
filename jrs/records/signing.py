"""Signed specs: an HMAC with a key that masters and submitters share.

A master with a key runs only jobs whose spec was signed with that key, so that write access to the
backend is not enough to make the master run code. The signature covers the whole record of the
spec, including fields of later versions, and is stored in the record.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any, Self

from jrs.contract.errors import InvalidInput
from jrs.contract.inputs import check_is, with_article
from jrs.host.credentials import opened
from jrs.records.codec import fields_of, with_fields

SIGNATURE = "signature"
_LEAST = 32
_DOMAIN = b"jrs spec 1\0"


class SpecKey:
    """The key that signs specs. No message, log or `repr` shows it.

    Raises:
        InvalidInput: the key has fewer than 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes):  # The message does not repeat it: it may be the secret.
            raise InvalidInput(f"a spec key must be bytes, not {with_article(type(key).__name__)}")
        if len(key) < _LEAST:
            raise InvalidInput(f"a spec key must have at least {_LEAST} bytes, not {len(key)}")
        self._key = key

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the key in a file: its bytes without trailing white space.

        Raises:
            InvalidInput: the file cannot be read, users other than its owner and group have access
                to it, its group can write to it, or the key is too short.
        """
        check_is(path, "the path of a spec key", str, os.PathLike)
        with opened(Path(path), "spec key") as file:
            key = file.read().rstrip()
        if len(key) < _LEAST:
            raise InvalidInput(
                f"the spec key {path} has {len(key)} bytes, but needs at least {_LEAST}; make one: "
                f"openssl rand -hex 32 > {path}"
            )
        return cls(key)

    def sign(self, spec: bytes, where: str) -> bytes:
        """Return the record of a spec with its signature.

        Raises:
            CorruptRecord: `spec` is not a record.
        """
        return with_fields(spec, where, **{SIGNATURE: self._of(fields_of(spec, where))})

    def has_signed(self, spec: bytes, where: str) -> bool:
        """Return whether the record of a spec was signed with this key and is unchanged since.

        Raises:
            CorruptRecord: `spec` is not a record.
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
    """Return whether the record of a spec has a signature of any key.

    Raises:
        CorruptRecord: `spec` is not a record.
    """
    return bool(fields_of(spec, where).get(SIGNATURE))


def renewed(changed: bytes, before: bytes, key: SpecKey | None, job_id: str) -> bytes:
    """Return the record of a changed spec, signed if the previous record was.

    A spec that was not signed with the key is never signed implicitly: no operator has checked it.

    Raises:
        InvalidInput: the spec is signed but no key is given, or it is not signed with `key`.
    """
    where = f"the spec of job {job_id!r}"
    if key is None:
        check_key(before, key, job_id)
        return changed
    if not key.has_signed(before, where):
        raise InvalidInput(
            f"{where} is not signed with this key: check it with jrs show {job_id}, then "
            f"jrs sign {job_id}"
        )
    return key.sign(changed, where)


def check_key(spec: bytes, key: SpecKey | None, job_id: str) -> None:
    """Raise `InvalidInput` if a spec is signed and no key is given to sign it again."""
    if key is None and is_signed(spec, f"the spec of job {job_id!r}"):
        raise InvalidInput(
            f"the spec of job {job_id!r} is signed and has to be signed again: give the masters' "
            "key, --spec-key FILE"
        )
