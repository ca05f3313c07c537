"""Figures that the isolation study of 2016 printed, for readers who hold their own against them."""

from __future__ import annotations

from collections.abc import Mapping

PUBLISHED: Mapping[tuple[str, str], tuple[float, float]] = {
    ("II", "bare"): (9.85, 0.33),
    ("II", "docker"): (10.20, 0.33),
    ("II", "docker-macvtap"): (10.22, 0.34),
    ("II", "vm"): (23.83, 2.29),
    ("III", "bare"): (19.65, 4.61),
    ("III", "docker"): (20.92, 4.66),
    ("III", "docker-macvtap"): (21.81, 4.90),
    ("III", "vm"): (269.39, 49.66),
    ("IV", "bare"): (40.75, 9.87),
    ("IV", "docker"): (42.11, 9.90),
    ("IV", "docker-macvtap"): (44.00, 10.44),
    ("IV", "vm"): (399.90, 0.70),
}
"""Table and setup → mean and sigma over time. II: memory of the host at 1X, %; III and IV: CPU of
the host at 1X and 2X, % of one core. Tables V and VI are not in the bundle this was made with."""

MME_ACTIVATION_S: Mapping[str, float] = {"bare": 4.77, "docker": 4.81, "vm": 12.01}
"""From the launch of an LTE mobility management entity to its readiness."""
