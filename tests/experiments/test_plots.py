import io
from pathlib import Path

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
import torch

from offbeat.experiments import run_directory
from offbeat.experiments.plots import _apart, accuracy_over_bytes, accuracy_over_time, staleness
from offbeat.experiments.timeline import timeline


def a_run(folder: Path, label, seed=0, seconds=(0.0, 60.0), accuracies=(0.1, 0.5), down=(0, 100), visits=()):
    """``visits`` are (client, staleness, assigned, ended, outcome)."""
    number = len(seconds)
    history = {name: [0] * number for name in run_directory.HISTORY.names}
    history |= {
        "seconds": list(seconds),
        "accuracy": list(accuracies),
        "bytes_down": list(down),
        "bytes_up": list(down),
    }
    events = {name: [0] * len(visits) for name in run_directory.EVENTS.names}
    for index, name in enumerate(("client", "staleness", "assigned_seconds", "ended_seconds", "outcome")):
        events[name] = [visit[index] for visit in visits]
    path = folder / label / str(seed)
    run_directory.write(
        path,
        config={"seeds": [seed], "algorithms": {label: {}}},
        history=history,
        events=events,
        model={"w": torch.zeros(1)},
        real_seconds=1.0,
    )
    return run_directory.read(path)


def colour_of(line):
    return matplotlib.colors.to_hex(line.get_color())


def draw(figure):
    """Ticks and layout are made only now; what is wrong there warns or raises now."""
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


def test_accuracy_over_time_of_one_seed(tmp_path):
    runs = [a_run(tmp_path, "a"), a_run(tmp_path, "b", seconds=(0.0, 7200.0))]
    figure = accuracy_over_time(runs, 0.4)
    draw(figure)
    (axes,) = figure.axes
    lines = named(axes)
    np.testing.assert_allclose(lines["b"].get_xydata(), [[0, 10], [120, 50]])  # minutes, percent
    assert axes.get_xlabel() == "virtual time (minutes)"
    assert [colour_of(lines["a"]), colour_of(lines["b"])] == ["#0072b2", "#d55e00"]
    (target,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert set(target.get_ydata()) == {40.0}
    assert "target 40 %" in [text.get_text() for text in axes.texts]
    assert axes.get_title(loc="right") == ""


def test_without_a_target_there_is_no_line_for_it(tmp_path):
    (axes,) = accuracy_over_time([a_run(tmp_path, "a")], None).axes
    assert not [line for line in axes.lines if line.get_linestyle() == ":"]


def test_the_mean_of_the_seeds_is_bold_and_ends_where_the_first_ends(tmp_path):
    runs = [
        a_run(tmp_path, "a", 0, (0.0, 60.0), (0.1, 0.5)),
        a_run(tmp_path, "a", 1, (0.0, 30.0, 90.0), (0.1, 0.2, 0.8), (0, 50, 100)),
    ]
    figure = accuracy_over_time(runs, None)
    draw(figure)
    (axes,) = figure.axes
    # At 30 s: 0.3 and 0.2; at 60 s: 0.5 and 0.5.
    np.testing.assert_allclose(named(axes)["a"].get_xydata(), [[0, 10], [30, 25], [60, 50]])
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert [len(line.get_xdata()) for line in thin] == [2, 3]
    assert "mean of the seeds" in axes.get_title(loc="right")


def test_seeds_that_never_overlap_still_have_a_mean(tmp_path):
    runs = [a_run(tmp_path, "a", seed, (50.0 + seed,), (0.4 + seed / 5,), (7 + seed,)) for seed in (0, 1)]
    for plot in (accuracy_over_time, accuracy_over_bytes):
        figure = plot(runs, 0.5)
        draw(figure)
        np.testing.assert_allclose(named(figure.axes[0])["a"].get_ydata(), 50)


def test_accuracy_over_bytes_counts_both_ways(tmp_path):
    figure = accuracy_over_bytes([a_run(tmp_path, "a", down=(0, 1000)), a_run(tmp_path, "b", down=(0, 3000))], 0.4)
    draw(figure)
    (axes,) = figure.axes
    np.testing.assert_allclose(named(axes)["b"].get_xdata(), [0, 6])
    assert "(kB)" in axes.get_xlabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]  # a ends in mid-plot


def test_names_at_equal_ends_are_moved_apart(tmp_path):
    figure = accuracy_over_time([a_run(tmp_path, label) for label in "abc"], None)
    draw(figure)
    (axes,) = figure.axes
    heights = sorted(text.xy[1] for text in axes.texts)
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    assert heights[1] == pytest.approx(50)
    assert min(np.diff(heights)) > 0.05 * np.ptp(axes.get_ylim())


def test_apart_moves_no_more_than_needed():
    assert _apart([0, 10, 20], 5) == [0, 10, 20]
    assert _apart([0, 0, 20], 4) == [-2, 2, 20]
    assert _apart([0, 5, 5, 5], 4) == [-2.25, 1.75, 5.75, 9.75]
    assert _apart([], 4) == []


def test_staleness_shares_sum_to_one_for_each_algorithm(tmp_path):
    visits = [(i, stale, 0.0, 1.0, "counted") for i, stale in enumerate([1, 1, 1, 5])]
    visits += [(9, 30, 0.0, 1.0, "unused"), (9, None, 0.0, 1.0, "lost")]
    runs = [
        a_run(tmp_path, "late", visits=visits),
        a_run(tmp_path, "sync", visits=[(0, 0, 0.0, 1.0, "counted")] * 3),
        a_run(tmp_path, "idle"),
    ]
    figure = staleness(runs)
    draw(figure)
    late, sync, idle = figure.axes
    assert late.patches[0].get_data().values.tolist() == [0, 75, 0, 0, 0, 25]
    assert late.patches[0].get_data().edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert late.get_title(loc="right") == "mean 2.0, maximum 5"
    assert sync.patches[0].get_data().values.tolist() == [100, 0, 0, 0, 0, 0]
    assert sync.get_ylim()[1] >= 100
    assert not idle.patches
    assert [text.get_text() for text in idle.texts] == ["no counted updates"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["late", "sync", "idle"]


def test_staleness_that_is_always_zero_has_a_readable_axis(tmp_path):
    figure = staleness([a_run(tmp_path, "sync", visits=[(0, 0, 0.0, 1.0, "counted")])])
    draw(figure)
    low, high = figure.axes[0].get_xlim()
    assert low < 0
    assert high >= 4


def test_a_few_very_stale_updates_do_not_squeeze_the_rest(tmp_path):
    visits = [(0, stale, 0.0, 1.0, "counted") for stale in [*range(120)] * 9 + [5000]]
    figure = staleness([a_run(tmp_path, "a", visits=visits)])
    draw(figure)
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < 130
    assert "bars of 2; the stalest are beyond the edge" in axes.get_xlabel()
    assert "maximum 5000" in axes.get_title(loc="right")
    shares = axes.patches[0].get_data().values
    assert shares.sum() == pytest.approx(100 * 1080 / 1081)  # of all updates, drawn or not


def test_timeline_puts_the_fastest_client_first(tmp_path):
    a = [
        (7, 0, 0.0, 40.0, "counted"),
        (3, 0, 0.0, 10.0, "counted"),
        (3, 1, 10.0, 20.0, "unused"),
        (5, None, 0.0, 1.0, "lost"),  # never heard: nobody knows how fast it is
    ]
    b = [(4, 0, 5.0, 25.0, "counted")]
    figure = timeline([a_run(tmp_path, "a", visits=a), a_run(tmp_path, "b", visits=b), a_run(tmp_path, "c")])
    draw(figure)
    panels = figure.axes
    assert bars(panels[0]) == {
        "counted": [(0.0, 40.0, 2), (0.0, 10.0, 0)],
        "unused": [(10.0, 20.0, 0)],
        "lost": [(0.0, 1.0, 3)],
    }
    assert bars(panels[1])["counted"] == [(5.0, 25.0, 1)]  # the rows are the same in all panels
    assert bars(panels[2]) == {"counted": [], "unused": [], "lost": []}
    assert panels[2].get_xlabel() == "virtual time (seconds)"
    assert panels[2].get_xlim() == (0, 40)
    assert figure.get_supylabel() == "clients"
    colours = {tuple(collection.get_colors()[0]) for collection in panels[0].collections}
    assert len(colours) == 3


def test_timeline_shows_the_first_seed(tmp_path):
    runs = [a_run(tmp_path, "a", seed, visits=[(seed, 0, 0.0, 10.0 + seed, "counted")]) for seed in (1, 0)]
    (axes,) = timeline(runs).axes
    assert bars(axes)["counted"] == [(0.0, 11.0, 0)]


def test_timeline_ends_when_there_are_too_many_bars_and_says_so(tmp_path):
    visits = [(c, 0, 100.0 * i, 100.0 * i + 90, "counted") for i in range(40) for c in range(80)]
    figure = timeline([a_run(tmp_path, "a", visits=visits)])
    draw(figure)
    (axes,) = figure.axes
    drawn = bars(axes)["counted"]
    assert len(drawn) == 18 * 80  # 1,500 begin before 1,800 s
    assert max(end for _, end, _ in drawn) <= axes.get_xlim()[1] == 30
    assert axes.get_xlabel() == "virtual time (minutes; the first 30 min of 1 h 6 min)"


def test_timeline_ends_before_bars_are_too_short_to_see(tmp_path):
    visits = [(0, 0, 1000.0 * i, 1000.0 * i + 2, "counted") for i in range(9)]
    figure = timeline([a_run(tmp_path, "a", visits=visits)])
    draw(figure)
    assert figure.axes[0].get_xlim() == (0, 120)
    assert bars(figure.axes[0])["counted"] == [(0.0, 2.0, 0)]


def test_timeline_leaves_out_clients_evenly_and_says_so(tmp_path):
    visits = [(c, 0, 0.0, 100.0 + c, "counted") for c in range(1999)]
    figure = timeline([a_run(tmp_path, "a", visits=visits)])
    draw(figure)
    drawn = bars(figure.axes[0])["counted"]
    assert len(drawn) == 100
    assert figure.get_supylabel() == "100 of 1,999 clients"
    assert [row for *_, row in drawn] == list(range(100))


def test_timeline_of_runs_without_visits(tmp_path):
    draw(timeline([a_run(tmp_path, "a")]))


def test_labels_are_plain_text(tmp_path):
    run = a_run(tmp_path, r"a $\frac{$ & <b>")
    for figure in (accuracy_over_time([run], 0.3), accuracy_over_bytes([run], None), staleness([run]), timeline([run])):
        draw(figure)


def test_nothing_global_is_left_changed(tmp_path):
    before = dict(matplotlib.rcParams)
    accuracy_over_time([a_run(tmp_path, "a")], 0.3)
    assert dict(matplotlib.rcParams) == before
