"""Words that a chart says to a pointer."""

from __future__ import annotations

from nodrop.report.chart import Chart


def told(chart: Chart) -> list[str]:
    return [words for pane in chart.panes for p in pane.plots for _, _, words, _ in p.told]
