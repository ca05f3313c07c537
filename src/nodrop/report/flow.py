"""The ledger drawn: a stream from intended to decoded whose width is packets."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from nodrop.ledger.balance import Ledger, Step
from nodrop.ledger.hops import ADDING, Account, Hop
from nodrop.report import numbers
from nodrop.report.definitions import definition
from nodrop.report.svg import number, picture, tag, text_width

LEAST_WIDTH, LEAST_MARGIN, APART = 1000.0, 70.0, 14.0
STREAM = 96.0
"""Height of the widest stream."""
TOP = 74.0
THINNEST = 1.5
"""A single lost packet must still be seen, so nothing is drawn thinner than this."""
BRANCH_DROP, LABEL_STEP = 40.0, 32.0
BEND = 6.0
"""Inner radius of a branch where it turns down."""
BESIDE, LABEL_GAP = 10.0, 6.0
"""Between two branches of a step; between a branch and its label."""
NAMES = {
    "intended": "intended",
    "sent": "sent",
    "tx_nic": "sending NIC",
    "rx_nic": "receiving NIC",
    "socket": "socket",
    "decoded": "decoded",
}


def hop_title(name: str) -> str:
    return NAMES.get(name, name.replace("_", " "))


def flow(ledger: Ledger, title: str) -> Markup:
    """The stream and its branches. Hops that were not read are named; the stream passes them."""
    seen = [hop for hop in ledger.hops if hop.packets is not None]
    most = max((hop.packets or 0 for hop in seen), default=0)
    if len(seen) < 2 or not most:
        return Markup("")
    scale = STREAM / most
    xs, width = _columns(seen, ledger.steps, scale)
    parts: list[Markup] = []
    for step in ledger.steps:
        parts += _step(step, xs[step.start.name], xs[step.end.name], scale)
    parts += [_hop(hop, xs[hop.name], scale) for hop in seen]
    rows = max((sum(1 for a in s.accounts if a.packets) for s in ledger.steps), default=0)
    height = TOP + STREAM + (BRANCH_DROP + rows * LABEL_STEP if rows else 14)
    return picture(width, height, title, *parts)


def _columns(
    seen: Sequence[Hop], steps: Sequence[Step], scale: float
) -> tuple[dict[str, float], float]:
    """The hops' places and the picture's width: every text has room, and what is left is shared."""
    left, right = (max(LEAST_MARGIN, _half(hop) + APART) for hop in (seen[0], seen[-1]))
    rooms = [_room(step, scale) for step in steps]
    spare = max(0.0, LEAST_WIDTH - left - right - sum(rooms)) / len(rooms)
    xs, x = {seen[0].name: left}, left
    for step, room in zip(steps, rooms, strict=True):
        x += room + spare
        xs[step.end.name] = x
    return xs, x + right


def _half(hop: Hop) -> float:
    """Of the wider of its two texts."""
    name = text_width(hop_title(hop.name), 13, bold=True)
    return max(name, text_width(numbers.count(hop.packets), 12)) / 2


def _room(step: Step, scale: float) -> float:
    """From one hop to the next; nothing between them touches."""
    heads = _half(step.start) + _half(step.end) + APART
    if step.over:
        heads += text_width(_blind(step), 11) + APART
    rooms = [heads, text_width(_residual(step), 11, bold=True) + APART]
    for account, right in _branches(step, scale):
        words = max(text_width(_count(account), 12, bold=True), text_width(account.name, 11))
        rooms.append(right + LABEL_GAP + words + APART)
    return max(rooms)


def _branches(step: Step, scale: float) -> list[tuple[Account, float]]:
    """The smallest first, each with its right edge: what leaves lower down turns down sooner."""
    shown = sorted((a for a in step.accounts if a.packets), key=lambda a: a.packets)
    found, right = [], BEND
    for account in reversed(shown):
        right += BESIDE + max(account.packets * scale, THINNEST)
        found.append((account, right))
    return found[::-1]


def _residual(step: Step) -> str:
    return f"residual {numbers.signed(step.residual_packets)}"


def _blind(step: Step) -> str:
    return f"{', '.join(hop_title(name) for name in step.over)}: not visible"


def _count(account: Account) -> str:
    sign = "+" if account.kind in ADDING else "−"
    return f"{sign}{numbers.count(account.packets)} {account.kind.value}"


def _step(step: Step, x0: float, x1: float, scale: float) -> list[Markup]:
    """What goes on runs straight; what leaves runs below it and turns down, the outermost first."""
    height = max((step.end.packets or 0) * scale, THINNEST)
    middle = (x0 + x1) / 2
    residual = step.residual_packets
    parts = [
        tag("rect", x=x0, y=TOP, width=x1 - x0, height=height, class_="stream"),
        tag(
            "text",
            _residual(step),
            x=middle,
            y=TOP - 10,
            class_="residual open" if residual else "residual",
            text_anchor="middle",
        ),
    ]
    if step.over:
        # Between the counts of its hops, which may not be equally wide.
        at = (x0 + _half(step.start) + x1 - _half(step.end)) / 2
        note = _blind(step)
        parts.append(tag("text", note, x=at, y=TOP - 28, class_="note", text_anchor="middle"))
    edge = TOP + height
    for row, (account, right) in enumerate(_branches(step, scale)):
        parts.append(_branch(account, row, x0, edge, x0 + right, scale))
        edge += account.packets * scale
    return parts


def _branch(
    account: Account, row: int, x0: float, edge: float, right: float, scale: float
) -> Markup:
    width = max(account.packets * scale, THINNEST)
    end = TOP + STREAM + BRANCH_DROP + row * LABEL_STEP
    outer = min(width + BEND, right - x0)
    ribbon = (
        f"M{number(x0)},{number(edge)} H{number(right - outer)} "
        f"Q{number(right)},{number(edge)} {number(right)},{number(edge + outer)} "
        f"V{number(end)} H{number(right - width)} V{number(edge + outer)} "
        f"Q{number(right - width)},{number(edge + width)} {number(right - outer)},"
        f"{number(edge + width)} H{number(x0)} Z"
    )
    full = _definition(account)
    return tag(
        "g",
        tag("title", full),
        tag("path", d=ribbon, class_="ribbon"),
        tag("text", _count(account), x=right + LABEL_GAP, y=end - 8, class_="branch-count"),
        tag("text", account.name, x=right + LABEL_GAP, y=end + 5, class_="branch-name"),
        class_=f"branch k-{account.kind.value}",
        tabindex="0",
        role="img",
    )


def _definition(account: Account) -> str:
    said = [
        f"{account.name}: {numbers.count(account.packets)} packets {account.kind.value}",
        f"counter: {account.counter}",
    ]
    if account.evidence:
        said.append(f"evidence: {account.evidence}")
    if account.knob:
        said.append(f"knob: {account.knob}")
    if meaning := definition(account.name):
        said.append(f"meaning: {meaning}")
    return "; ".join(said)


def _hop(hop: Hop, x: float, scale: float) -> Markup:
    height = max((hop.packets or 0) * scale, THINNEST)
    says = f"{hop_title(hop.name)}: {numbers.count(hop.packets)} packets; counter: {hop.counter}"
    if meaning := definition(hop.name):
        says += f"; {meaning}"
    middle = {"x": x, "text_anchor": "middle"}
    return tag(
        "g",
        tag("title", says),
        tag("rect", x=x - 3, y=TOP - 2, width=6, height=height + 4, class_="hop-bar", rx=2),
        tag("text", hop_title(hop.name), y=TOP - 44, class_="hop-name", **middle),
        tag("text", numbers.count(hop.packets), y=TOP - 28, class_="hop-count", **middle),
        class_="hop",
        tabindex="0",
        role="img",
    )
