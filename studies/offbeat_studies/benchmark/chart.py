"""The chart of a world of the benchmark."""

import matplotlib as mpl
from matplotlib.figure import Figure

from offbeat.report.plot_style import GREY, STYLE, tidy
from offbeat_studies.benchmark.catalogue import BASELINE
from offbeat_studies.benchmark.effects import Comparison
from offbeat_studies.benchmark.raw_data import COSTS
from offbeat_studies.benchmark.table import COST_NAMES, by_accuracy


@mpl.rc_context(STYLE)
def chart(comparison: Comparison) -> Figure:
    """Draw each algorithm's accuracy over the baseline's, a panel for each cost."""
    shown = [label for label in reversed(by_accuracy(comparison)) if label != BASELINE]
    figure = Figure(figsize=(9.6, 1.1 + 0.22 * len(shown)), layout="constrained")
    panels = figure.subplots(1, len(COSTS), sharey=True, squeeze=False)[0]
    for axes, cost in zip(panels, COSTS, strict=True):
        tidy(axes)
        axes.axvline(0, color=GREY, linewidth=1)
        for y, label in enumerate(shown):
            effect = comparison.find(label, BASELINE, "accuracy", cost)
            if effect is None:
                axes.text(0, y, " not spent", va="center", color=GREY, fontsize=7.5)
                continue
            colour = GREY if not effect.is_clear else "#0072B2" if effect.is_better else "#D55E00"
            axes.plot([100 * effect.low, 100 * effect.high], [y, y], color=colour, linewidth=1.6)
            axes.plot(100 * effect.size, y, "o", color=colour, markersize=4.5)
        axes.set_yticks(range(len(shown)), shown)
        axes.set_title(f"at equal {COST_NAMES[cost]}", loc="left")
    panels[1].set_xlabel("accuracy over FedAvg's at equal cost, points; 95 % intervals; grey: not clear")
    return figure
