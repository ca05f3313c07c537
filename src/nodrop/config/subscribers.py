"""Identities and keys of mobile subscribers, as options name them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from nodrop.config.options import Options, existing_file, shown
from nodrop.untrusted.folder import read_file

IMSI_DIGITS = 15
KEY_DIGITS = 32
HEADER = "imsi,k,opc"
MOST_LISTED = 100_000
MOST_BYTES = 100 * MOST_LISTED
RANGE = ("first_imsi", "k", "opc", "subscribers")
"""Keys that say of subscribers what a file of them says."""


def _digits(least: int, most: int, what: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not (least <= len(text) <= most and text.isascii() and text.isdigit()):
            raise ValueError(f"must be {what}")
        return text

    return check


def _key(text: str) -> str:
    if len(text) != KEY_DIGITS or any(c not in "0123456789abcdefABCDEF" for c in text):
        raise ValueError(f"must be {KEY_DIGITS} hexadecimal digits")
    return text.lower()


_imsi = _digits(IMSI_DIGITS, IMSI_DIGITS, f"{IMSI_DIGITS} digits")
Imsi = Annotated[str, AfterValidator(_imsi)]
Key = Annotated[str, AfterValidator(_key)]
MobileCountryCode = Annotated[str, AfterValidator(_digits(3, 3, "3 digits"))]
MobileNetworkCode = Annotated[str, AfterValidator(_digits(2, 3, "2 or 3 digits"))]


Eea = Annotated[int, Field(ge=0, le=3)]
"""EPS encryption algorithm: 0 = none, 1 = SNOW 3G, 2 = AES, 3 = ZUC."""
Eia = Annotated[int, Field(ge=1, le=3)]
"""EPS integrity algorithm: 1 = SNOW 3G, 2 = AES, 3 = ZUC."""


@dataclass(frozen=True, slots=True)
class SubscriberFile:
    """A CSV file of subscribers with keys of their own, as it was when it was read."""

    path: Path
    sha256: str
    usims: tuple[Mapping[str, str], ...]
    """`imsi`, `k` and `opc` of each, in the order of their IMSIs."""


def _read(written: object, info: ValidationInfo) -> SubscriberFile:
    if not isinstance(written, str):
        raise ValueError("must be a text in quotes")
    path = existing_file(Path(written), info)
    try:
        content = read_file(path, most_bytes=MOST_BYTES)
        header, *lines = content.decode("utf-8-sig").splitlines() or [""]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if header != HEADER:
        raise ValueError(f"{path}:1: must be the header {HEADER}")
    if not 0 < len(lines) <= MOST_LISTED:
        raise ValueError(f"{path}: must have 1 to {MOST_LISTED:,} subscribers, not {len(lines):,}")
    found: dict[str, int] = {}
    usims = []
    for number, line in enumerate(lines, 2):
        try:
            usim = _usim(line)
            before = found.setdefault(usim["imsi"], number)
            if before != number:
                raise ValueError(f"imsi = {usim['imsi']} is in line {before} as well")
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        usims.append(usim)
    usims.sort(key=lambda usim: usim["imsi"])
    return SubscriberFile(path, hashlib.sha256(content).hexdigest(), tuple(usims))


def _usim(line: str) -> Mapping[str, str]:
    """A key is a secret, which no error shows."""
    fields = line.split(",")
    if len(fields) != HEADER.count(",") + 1:
        raise ValueError(f"must be {HEADER}, not {len(fields)} fields")
    imsi, k, opc = fields
    try:
        _imsi(imsi)
    except ValueError as error:
        raise ValueError(f"imsi = {shown(imsi)}: {error}") from None
    keys = {}
    for name, key in (("k", k), ("opc", opc)):
        try:
            keys[name] = _key(key)
        except ValueError as error:
            raise ValueError(f"{name} ({len(key)} characters): {error}") from None
    return {"imsi": imsi, **keys}


ListedSubscribers = Annotated[
    SubscriberFile,
    PlainValidator(_read),
    PlainSerializer(lambda file: str(file.path), return_type=str),
    WithJsonSchema({"type": "string"}),
]


class Subscribers(Options):
    """Identities and keys of a load's UEs, or of the subscribers that an MME serves."""

    first_imsi: Imsi = "001010000000001"
    """IMSI of the first; the others follow."""
    k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc"
    """Key K of each subscriber."""
    opc: Key = "cd63cb71954a9f4e48a5994e37a02baf"
    """Key OPc of each subscriber."""
    subscribers_file: ListedSubscribers | None = None
    """CSV file of subscribers with keys of their own, instead of `first_imsi`, `k` and `opc`."""
    mcc: MobileCountryCode = "001"
    mnc: MobileNetworkCode = "01"

    @model_validator(mode="after")
    def _range_or_file(self) -> Self:
        also = next((key for key in RANGE if key in self.model_fields_set), None)
        if self.subscribers_file is not None and also is not None:
            raise ValueError(f"{also}: leave it out, subscribers_file says it")
        return self

    def files_sha256(self, table: str) -> Mapping[str, str]:
        """Content of what was read, by the key that names it."""
        file = self.subscribers_file
        return {} if file is None else {f"{table}.subscribers_file": file.sha256}
