"""The part of a trace that a trial offered."""

from __future__ import annotations

from nodrop.config.units import count_of
from nodrop.ledger.quantities import Count, NotNegative, Seconds
from nodrop.results.model import Model

BEGUN_LEAST = 0.95
"""Packets in flows that begin in the window. Of a window with 92 % Suricata took a third less CPU
per packet than if it skips nothing (docs/methodology.md)."""


class LoadWindow(Model):
    span: str
    """`12..17`: seconds after the first packet of the trace, exactly. As `load.window` it sends the
    same packets."""
    from_s: Seconds
    to_s: Seconds
    packets: Count
    frame_bytes: Count
    pps: NotNegative | None
    """Rate at the trace's own speed, as all that follows; null if the trace takes no time."""
    bps: NotNegative | None
    """Bits of Ethernet frames."""
    trace_packets: Count
    """Packets of the whole trace."""
    trace_bytes: Count
    trace_s: Seconds
    mean_pps: NotNegative | None
    """Mean rate of the whole trace; the peaks are of the whole trace too."""
    mean_bps: NotNegative | None
    peak_pps: NotNegative
    """The most packets within any second."""
    peak_bps: NotNegative
    begun_packet_ratio: NotNegative | None
    """Share of the window's packets that lie in flows which begin in it, of those that belong to a
    flow; null if none does."""
    begun_byte_ratio: NotNegative | None

    @property
    def is_whole(self) -> bool:
        return self.packets == self.trace_packets

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s

    @property
    def name(self) -> str:
        """`seconds 10.0 to 15.0 of the trace`."""
        if self.is_whole:
            ms = f"{1e3 * self.trace_s:.3g} ms"
            return f"the whole trace ({ms if self.trace_s < 0.1 else f'{self.trace_s:,.1f} s'})"
        digits = 1 if self.length_s >= 1 else 3
        return f"seconds {self.from_s:,.{digits}f} to {self.to_s:,.{digits}f} of the trace"

    @property
    def rate_words(self) -> str:
        """`3,000 packets/s, 12.1 Mbit/s`."""
        if self.pps is None or self.bps is None:
            packets = count_of(self.packets, "packet")
            return f"{packets} at one moment, so it has no rate of its own and no NX"
        return f"{self.pps:,.0f} packets/s, {_digits(self.bps / 1e6)} Mbit/s"

    @property
    def beside_trace(self) -> str:
        """How it stands to the whole trace; empty if it is all of it."""
        if self.is_whole:
            return ""
        said = f"{_share(self.packets, self.trace_packets)} of its packets, "
        said += f"{_share(self.frame_bytes, self.trace_bytes)} of its bytes and "
        said += f"{_share(self.length_s, self.trace_s)} of its {self.trace_s:,.1f} s"
        if self.pps is None or self.mean_pps is None:
            return said
        return (
            f"{said}; the whole trace has {self.mean_pps:,.0f} packets/s on average and "
            f"{self.peak_pps:,.0f} in its busiest second"
        )

    @property
    def sentence(self) -> str:
        """`the load sends seconds 10.0 to 15.0 of the trace: 3,000 packets/s, …`."""
        return "; ".join(filter(None, (self.sent_words, self.begun_words)))

    @property
    def sent_words(self) -> str:
        said = f"the load sends {self.name}: {self.rate_words}"
        return "; ".join(filter(None, (said, self.beside_trace)))

    @property
    def begun_words(self) -> str:
        """Empty if nothing belongs to a flow."""
        if self.begun_packet_ratio is None or self.begun_byte_ratio is None:
            return ""
        return (
            f"{_share(self.begun_packet_ratio, 1)} of its packets and "
            f"{_share(self.begun_byte_ratio, 1)} of its bytes are in flows that begin in it"
        )

    @property
    def begun_warning(self) -> str:
        """Empty if most of it begins in the window."""
        ratio = self.begun_packet_ratio
        if ratio is None or ratio >= BEGUN_LEAST:
            return ""
        longer = "" if self.is_whole else "; a longer window has more of its flows whole"
        return (
            f"{self.begun_words}: an IDS may skip what it did not see begin, and then looks faster "
            f"than it is{longer}"
        )


def _share(part: float, whole: float) -> str:
    return f"{_digits(100 * part / whole)} %" if whole else "all"


def _digits(value: float) -> str:
    """The value with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The body of a trial whose load is packets: what became of each of them.
