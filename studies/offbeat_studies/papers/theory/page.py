"""The table and the figure of the pages on theory, from measurements.

The table is in ``docs/theory-measurements.md``, the figure in ``docs/theory.md``.

``make theory-docs``, in a checkout.
"""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from offbeat.report.plot_style import STYLE, WIDTH, colours, tidy
from offbeat.theory import fedbuff_bound, fedbuff_step_size
from offbeat_studies.papers.theory import check
from offbeat_studies.papers.theory.fedbuff import fedbuff_models
from offbeat_studies.papers.theory.measured_bound import COLUMNS, cells
from offbeat_studies.papers.theory.problems import Quadratics, mean_gradient_square

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "theory-measurements.md"
FIGURE = DOCS / "images" / "theory_fedbuff_arrivals.png"
SEEDS = 20

_TABLE = re.compile(r"(?<=<!-- `make theory-docs` writes from here -->\n).*(?=<!-- to here -->)", re.DOTALL)
_PAIR = Quadratics("two quadratics, centres ±1", np.ones(1), np.array([[1.0], [-1.0]]), np.zeros(1))
_ARRIVALS = {"uniform arrivals": (0.5, 0.5), "arrivals 0.9 / 0.1": (0.9, 0.1)}
_SERVER_STEPS = (1280, 2500, 5000, 10_000, 20_000, 40_000, 80_000)  # the first is the theorem's smallest T


def table() -> str:
    """Return the rows of ``offbeat theory measure`` as a Markdown table."""
    rows = [(*COLUMNS[:-1], "Result"), *map(cells, check(SEEDS))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "| --- | --- | ---: | ---: | ---: | --- |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with a new table."""
    return _TABLE.sub(lambda _: f"\n{table()}\n\n", text)


def measured(shares: tuple[float, float], server_steps: int) -> float:
    """Return FedBuff's (1/T) Σ ‖∇f(w_t)‖² at the theorem's step size, over the seeds."""
    rng = np.random.default_rng([server_steps, SEEDS])
    chosen = rng.choice(2, size=(server_steps, SEEDS, 1), p=shares)
    lr = fedbuff_step_size(server_steps=server_steps, steps=1, smoothness=1)
    path = fedbuff_models(_PAIR, rng, chosen, steps=1, lr=lr, max_staleness=0)
    return float(mean_gradient_square(_PAIR, path).mean())


def bound(server_steps: int) -> float:
    """Return the bound of Theorem 1."""
    return fedbuff_bound(
        server_steps=server_steps,
        steps=1,
        clients=_PAIR.clients,
        max_staleness=0,
        smoothness=_PAIR.smoothness,
        initial_error=_PAIR.initial_error,
        variance=_PAIR.variance,
        diversity=_PAIR.diversity,
    ).value


def figure() -> Figure:
    """Return the figure: measurement and bound against T."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        axes = drawn.subplots()
        for (name, shares), colour in zip(_ARRIVALS.items(), colours(_ARRIVALS), strict=True):
            values = [measured(shares, server_steps) for server_steps in _SERVER_STEPS]
            axes.plot(_SERVER_STEPS, values, "o-", markersize=4, color=colour, label=name)
        axes.plot(_SERVER_STEPS, list(map(bound, _SERVER_STEPS)), "--", color="#000000", label="bound of Theorem 1")
        axes.set(xscale="log", yscale="log", xlabel="server steps T", ylabel="mean of ‖∇f(w_t)‖²")
        axes.set_xticks(_SERVER_STEPS, [f"{server_steps:,}" for server_steps in _SERVER_STEPS])
        axes.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
        axes.minorticks_off()
        tidy(axes)
        axes.legend(frameon=False)
    return drawn


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    figure().savefig(FIGURE, dpi=130, metadata={"Software": None})
