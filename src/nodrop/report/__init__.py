"""Reports: a pure function of run directories. Nothing here touches a lab, a SUT or a clock."""
