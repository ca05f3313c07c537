"""kvm or tcg: decided by how fast a guest really runs, not by whether /dev/kvm is there."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.errors import LabProblem
from nodrop.hosts.seam import Host, Json
from nodrop.untrusted.reading import making_sense


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    name: str
    """`kvm` or `tcg`; tcg is emulation, and never printed as anything else."""
    reason: str
    """Why this one."""
    ns_per_iteration: float | None
    """What the probe measured of /dev/kvm."""

    def facts(self) -> Json:
        return {
            "accelerator": self.name,
            "accelerator_reason": self.reason,
            "kvm_ns_per_iteration": self.ns_per_iteration,
        }


@making_sense("what the node says of KVM")
def choose_accelerator(host: Host, asked: str) -> Accelerator:
    """`auto` takes KVM if it is usable. LabProblem if `kvm` is asked for and is not."""
    if asked == "tcg":
        return Accelerator(name="tcg", reason="setup.accelerator", ns_per_iteration=None)
    said = host.probe("kvm")["kvm"]
    each = said["ns_per_iteration"]
    if said["usable"]:
        return Accelerator(
            name="kvm", reason=f"{each:.1f} ns for an instruction pair", ns_per_iteration=each
        )
    if asked == "kvm":
        raise LabProblem(
            f"KVM is not usable here: {said['reason']}",
            hint='setup.accelerator = "tcg" emulates, and says so in every row',
        )
    return Accelerator(name="tcg", reason=said["reason"] or "", ns_per_iteration=each)
