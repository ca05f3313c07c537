"""CPUs as the kernel's own files take them."""

from __future__ import annotations

import pytest

from nodrop.config.units import cpu_mask


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ([0], "1"),
        ([0, 1, 5], "23"),
        ([31], "80000000"),
        ([1, 33], "2,00000002"),
        ([64], "1,00000000,00000000"),
    ],
)
def test_a_comma_stands_between_32_bits_each(cpus: list[int], mask: str) -> None:
    assert cpu_mask(cpus) == mask
