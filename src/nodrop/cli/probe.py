"""`nodrop probe`: questions to this CPU and its hypervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.terminal.arguments import AsJson
from nodrop.terminal.saying import say, say_json

if TYPE_CHECKING:
    from nodrop.protocol.events import Kvm

probe = typer.Typer(no_args_is_help=True, help="Questions to this CPU and its hypervisor.")


Setups = Annotated[
    list[str] | None,
    typer.Option(
        "--setup", metavar="KIND", help="Ask in this setup (bare, docker, vm …); repeatable."
    ),
]


def add_to(app: typer.Typer) -> None:
    app.add_typer(probe, name="probe")


@probe.command()
def tsc(setup: Setups = None, as_json: AsJson = False) -> None:
    """Measure the cost of rdtsc, cpuid, clock_gettime and a system call in ns: best (median).

    \b
    nodrop probe tsc
    nodrop probe tsc --setup bare --setup docker
    """
    from nodrop.measure.calibrated import probe_here, probe_in
    from nodrop.terminal.tables import console, costs_table

    found = probe_in("tsc", setup) if setup else {"here": {**probe_here("tsc")["tsc"]}}
    if as_json:
        say_json(found)
    else:
        console().print(costs_table(found))


@probe.command()
def vmx(setup: Setups = None, as_json: AsJson = False) -> None:
    """Say what this CPU's VMX may make a guest exit for, from its registers (root, Intel).

    \b
    nodrop probe vmx
    nodrop probe vmx --setup vm --json
    """
    from nodrop.measure.calibrated import probe_here, probe_in

    found = probe_in("vmx", setup) if setup else {"here": {**probe_here("vmx")["vmx"]}}
    if as_json:
        say_json(found if setup else found["here"])
        return
    for kind, said in found.items():
        if setup:
            say(f"{kind}:")
        _print_vmx(said)


def _print_vmx(said: dict[str, Any]) -> None:
    if said["unreadable"]:
        say(f"no VMX listing: {said['unreadable']}")
    for group, controls in said["controls"].items():
        say(f"{group}: " + ", ".join(f"{name} {value}" for name, value in controls.items()))


@probe.command()
def kvm(as_json: AsJson = False) -> None:
    """Whether /dev/kvm runs guests at the speed of the CPU; setup vm decides by this.

    \b
    nodrop probe kvm
    nodrop probe kvm --json
    """
    from nodrop.measure.calibrated import probe_here

    found = probe_here("kvm")["kvm"]
    say_json(found) if as_json else say(_kvm_words(found))


def _kvm_words(found: Kvm) -> str:
    if found["usable"]:
        return f"usable: {found['ns_per_iteration']:.1f} ns for an instruction pair in ring 0"
    return f"not usable, guests are emulated (tcg): {found['reason']}"
