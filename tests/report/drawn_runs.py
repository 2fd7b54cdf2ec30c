"""Runs to draw, and readers of their figures."""

import io
import math
from pathlib import Path

import matplotlib.colors
import numpy as np

from offbeat.runs.directory import Run


def a_run(label, seed=0, seconds=(0.0, 60.0), values=(0.1, 0.5), down=(0, 100), visits=(), *, evaluate=None):
    """``values`` are of the main measure; ``visits`` are (client, staleness, assigned, ended, outcome)."""
    evaluate = evaluate or {"metrics": ["accuracy"], "better": "higher"}
    history = {"seconds": np.array(seconds, float), "loss": np.ones(len(seconds))}
    history |= {"bytes_down": np.array(down), "bytes_up": np.array(down)}
    history[[*evaluate["metrics"], "loss"][0]] = np.array(values, float)
    client, stale, assigned, ended, outcome = zip(*visits, strict=True) if visits else [()] * 5
    events = {
        "client": np.array(client, np.int64),
        "staleness": np.array([math.nan if tau is None else tau for tau in stale], float),
        "assigned_seconds": np.array(assigned, float),
        "ended_seconds": np.array(ended, float),
        "outcome": np.array(outcome, object),
    }
    config = {"algorithms": {label: {}}, "evaluate": evaluate}
    return Run(Path(label), label, seed, config, history, events, 1.0)


def colour_of(line):
    return matplotlib.colors.to_hex(line.get_color())


def draw(figure):
    """Ticks and layout are made here, so their errors show here."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def named(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def bars(axes):
    """The bars of a panel as {outcome: [(begin, end, row)]}."""
    return {
        collection.get_label(): [(begin, end, row) for (begin, row), (end, _) in collection.get_segments()]
        for collection in axes.collections
    }
