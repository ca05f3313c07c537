"""Identities and keys of mobile subscribers, as options name them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from nodrop.config.options import Options

IMSI_DIGITS = 15
KEY_DIGITS = 32


def _digits(least: int, most: int, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not (least <= len(text) <= most and text.isascii() and text.isdigit()):
            raise ValueError(f"must be {what}")
        return text

    return AfterValidator(check)


def _key(text: str) -> str:
    if len(text) != KEY_DIGITS or any(c not in "0123456789abcdefABCDEF" for c in text):
        raise ValueError(f"must be {KEY_DIGITS} hexadecimal digits")
    return text.lower()


Imsi = Annotated[str, _digits(IMSI_DIGITS, IMSI_DIGITS, f"{IMSI_DIGITS} digits")]
Key = Annotated[str, AfterValidator(_key)]
MobileCountryCode = Annotated[str, _digits(3, 3, "3 digits")]
MobileNetworkCode = Annotated[str, _digits(2, 3, "2 or 3 digits")]


class Subscribers(Options):
    """Identities and keys of a load's UEs, or of the subscribers that an MME serves."""

    first_imsi: Imsi = "001010000000001"
    """IMSI of the first; the others follow."""
    k: Key = "465b5ce8b199b49faa5f0a2ee238a6bc"
    """K of each."""
    opc: Key = "cd63cb71954a9f4e48a5994e37a02baf"
    """OPc of each."""
    mcc: MobileCountryCode = "001"
    mnc: MobileNetworkCode = "01"
