"""Reports: a pure function of run directories. Nothing here touches a lab, a SUT or a clock."""

from nodrop.report.write import write_report

__all__ = ["write_report"]
