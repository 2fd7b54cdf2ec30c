import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from offbeat.report import plots
from offbeat.report.coinciding import take_turns
from tests.report.example_runs import a_run, draw


def ink(figure):
    """Return the colours of the pixels of a figure, ``(n, 3)``."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].reshape(-1, 3)


def pixels(figure, colour):
    return int((ink(figure) == colour).all(axis=1).sum())


def drawn(*curves):
    figure = Figure()
    axes = figure.subplots()
    for colour, label, ys in curves:
        axes.plot(range(len(ys)), ys, color=colour, label=label, linewidth=3)
    take_turns(axes)
    return figure


def test_each_of_three_equal_curves_is_seen():
    figure = drawn(*((colour, colour, [0, 1, 2]) for colour in ("#ff0000", "#00ff00", "#0000ff")))
    seen = [pixels(figure, colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    assert min(seen) > 0.7 * max(seen) > 100


def test_curves_that_cross_and_lines_without_a_label_stay_solid():
    figure = drawn(("#ff0000", "a", [0, 1, 2]), ("#00ff00", "b", [2, 1, 0]), ("#0000ff", None, [0, 1, 2]))
    assert [line.is_dashed() for line in figure.axes[0].get_lines()] == [False, False, False]


def test_a_report_draws_equal_algorithms_in_turns():
    runs = [a_run(label, seed, values) for label, values in (("a", (0.1, 0.5)), ("b", (0.1, 0.5)), ("c", (0.1, 0.9)))
            for seed in (0, 1, 2)]  # fmt: skip
    lines = {line.get_label(): line for line in draw(plots.curves("seconds", runs, None)).axes[0].get_lines()}
    assert [lines[label].is_dashed() for label in "abc"] == [True, True, False]
