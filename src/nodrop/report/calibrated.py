"""Which known answers the instrument had caught on this lab before it was believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodrop.report import escape, numbers
from nodrop.report.story import Source
from nodrop.results.sittings import measured_on


def calibration_words(source: Source) -> list[tuple[bool, str]]:
    """Per setup, and per host if there are several, whether all is well, and a sentence. Empty if
    the manifest does not say: the run was made before there were certificates, or by another
    program."""
    manifest = source.run.manifest
    hosts = measured_on(manifest)
    if not hosts:
        return [*_of_host(manifest)]
    return [
        (well, f"{escape.plain(name)}: {words}")
        for name, host in hosts.items()
        for well, words in _of_host(host)
    ]


def _of_host(manifest: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    found = manifest.get("calibration")
    for item in found if isinstance(found, list) else []:
        if isinstance(item, dict):
            yield _words(item)


def _words(item: Mapping[str, Any]) -> tuple[bool, str]:
    setup = escape.plain(item.get("setup"))
    certificate = item.get("certificate")
    if not isinstance(certificate, dict):
        why = escape.plain(item.get("not_calibrated"), longest=500)
        return False, f"{setup}: not calibrated ({why})"
    caught, missed, impossible = (
        _names(certificate.get(name)) for name in ("caught", "missed", "not_possible")
    )
    made = escape.plain(certificate.get("made_utc"))
    words = f"{setup} stands on the certificate of {made}: "
    words += f"{len(caught)} of {len(caught) + len(missed)} known answers caught"
    if missed:
        words += f", missed {', '.join(missed)}"
    if impossible:
        words += f"; not possible here: {', '.join(impossible)}"
    return not missed, "; ".join((words, *_figures(certificate)))


def _figures(certificate: Mapping[str, Any]) -> Iterator[str]:
    loss = certificate.get("smallest_loss")
    if isinstance(loss, dict):
        packets, of_packets = loss.get("packets"), loss.get("of_packets")
        if isinstance(packets, int) and isinstance(of_packets, int):
            yield (
                f"smallest loss named to the packet {numbers.count(packets)} "
                f"of {numbers.count(of_packets)}"
            )
    pace = certificate.get("largest_pps_paced")
    if isinstance(pace, int | float):
        yield f"sender within its bounds up to {numbers.count(pace)} packets/s"


def _names(found: Any) -> list[str]:
    return [escape.plain(name) for name in found] if isinstance(found, list) else []
