"""The ledger drawn: a stream from intended to decoded whose width is packets."""

from __future__ import annotations

from markupsafe import Markup

from nodrop.ledger.balance import Ledger, Step
from nodrop.ledger.hops import ADDING, Account, Hop
from nodrop.report import numbers
from nodrop.report.definitions import definition
from nodrop.report.svg import number, picture, tag

WIDTH, LEFT, RIGHT = 1000.0, 70.0, 70.0
STREAM = 96.0
"""Height of the widest stream."""
TOP = 74.0
THINNEST = 1.5
"""A single lost packet must still be seen, so nothing is drawn thinner than this."""
BRANCH_DROP, LABEL_STEP = 40.0, 32.0
BEND = 6.0
"""Inner radius of a branch where it turns down."""
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
    """The stream and its branches. Hops nobody could read are named, and the stream passes them."""
    seen = [hop for hop in ledger.hops if hop.packets is not None]
    most = max((hop.packets or 0 for hop in seen), default=0)
    if len(seen) < 2 or not most:
        return Markup("")
    scale = STREAM / most
    gap = (WIDTH - LEFT - RIGHT) / (len(seen) - 1)
    xs = {hop.name: LEFT + i * gap for i, hop in enumerate(seen)}
    parts: list[Markup] = []
    for step in ledger.steps:
        parts += _step(step, xs[step.start.name], xs[step.end.name], scale)
    parts += [_hop(hop, xs[hop.name], scale) for hop in seen]
    rows = max((sum(1 for a in s.accounts if a.packets) for s in ledger.steps), default=0)
    height = TOP + STREAM + (BRANCH_DROP + rows * LABEL_STEP if rows else 14)
    return picture(WIDTH, height, title, *parts)


def _step(step: Step, x0: float, x1: float, scale: float) -> list[Markup]:
    """What goes on runs straight; what leaves runs below it and turns down, the outermost first."""
    height = max((step.end.packets or 0) * scale, THINNEST)
    middle = (x0 + x1) / 2
    residual = step.residual_packets
    parts = [
        tag("rect", x=x0, y=TOP, width=x1 - x0, height=height, class_="stream"),
        tag(
            "text",
            f"residual {numbers.signed(residual)}",
            x=middle,
            y=TOP - 10,
            class_="residual open" if residual else "residual",
            text_anchor="middle",
        ),
    ]
    if step.over:
        blind = ", ".join(hop_title(name) for name in step.over)
        note = f"{blind}: not visible"
        parts.append(tag("text", note, x=middle, y=TOP - 26, class_="note", text_anchor="middle"))
    shown = sorted((a for a in step.accounts if a.packets), key=lambda a: a.packets)
    edge = TOP + height
    for row, account in enumerate(shown):
        right = x0 + (x1 - x0) * (0.36 - 0.1 * row) + min(account.packets * scale, 30)
        parts.append(_branch(account, row, x0, edge, right, scale))
        edge += account.packets * scale
    return parts


def _branch(
    account: Account, row: int, x0: float, edge: float, right: float, scale: float
) -> Markup:
    width = max(account.packets * scale, THINNEST)
    end = TOP + STREAM + BRANCH_DROP + row * LABEL_STEP
    adds = account.kind in ADDING
    outer = min(width + BEND, right - x0)
    ribbon = (
        f"M{number(x0)},{number(edge)} H{number(right - outer)} "
        f"Q{number(right)},{number(edge)} {number(right)},{number(edge + outer)} "
        f"V{number(end)} H{number(right - width)} V{number(edge + outer)} "
        f"Q{number(right - width)},{number(edge + width)} {number(right - outer)},"
        f"{number(edge + width)} H{number(x0)} Z"
    )
    said = f"{'+' if adds else '−'}{numbers.count(account.packets)} {account.kind.value}"
    full = _definition(account)
    return tag(
        "g",
        tag("title", full),
        tag("path", d=ribbon, class_="ribbon"),
        tag("text", said, x=right + 6, y=end - 8, class_="branch-count"),
        tag("text", account.name, x=right + 6, y=end + 5, class_="branch-name"),
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
