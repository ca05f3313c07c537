"""The run directories of the unit tests."""

from tests.unit.report.conftest import demo, isolation, mixed, scale_out

__all__ = ["demo", "isolation", "mixed", "scale_out"]
