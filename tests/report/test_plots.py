import io
import math
from pathlib import Path

import matplotlib
import matplotlib.colors
import numpy as np
import pytest

from offbeat.report.plots import _apart, over_bytes, over_time, staleness
from offbeat.report.timeline import timeline
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


def test_accuracy_over_time_of_one_seed():
    runs = [a_run("a"), a_run("b", seconds=(0.0, 7200.0))]
    figure = over_time(runs, 0.4)
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


def test_without_a_target_there_is_no_line_for_it():
    (axes,) = over_time([a_run("a")], None).axes
    assert not [line for line in axes.lines if line.get_linestyle() == ":"]


def test_the_mean_of_the_seeds_is_bold_and_ends_where_the_first_ends():
    runs = [
        a_run("a", 0, (0.0, 60.0), (0.1, 0.5)),
        a_run("a", 1, (0.0, 30.0, 90.0), (0.1, 0.2, 0.8), (0, 50, 100)),
    ]
    figure = over_time(runs, None)
    draw(figure)
    (axes,) = figure.axes
    # At 30 s: 0.3 and 0.2; at 60 s: 0.5 and 0.5.
    np.testing.assert_allclose(named(axes)["a"].get_xydata(), [[0, 10], [30, 25], [60, 50]])
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert [len(line.get_xdata()) for line in thin] == [2, 3]
    assert "mean of the seeds" in axes.get_title(loc="right")


def test_the_band_is_the_confidence_interval_of_the_mean():
    runs = [a_run("a", seed, values=(0.1, value)) for seed, value in enumerate((0.4, 0.5, 0.6))]
    figure = over_time([*runs, a_run("b")], None)
    draw(figure)
    (axes,) = figure.axes
    (band,) = axes.collections  # one seed has none
    # At 60 s: s = 10 %, t = 4.3027 for 2 degrees of freedom; 4.3027 · 10 / √3 = 24.84. At 0 s the seeds agree.
    points = band.get_paths()[0].vertices
    assert sorted({round(y, 2) for x, y in points if x == 60}) == [pytest.approx(25.16), pytest.approx(74.84)]
    assert [y for x, y in points if x == 0] == pytest.approx([10] * sum(points[:, 0] == 0))
    assert not [line for line in axes.lines if line.get_linewidth() < 1]
    assert axes.get_title(loc="right") == "bold: mean of the seeds, shaded: its 95 % confidence interval"
    low, high = axes.get_ylim()
    assert low < 10 < 60 < high < 74.84  # all seeds are seen, a wide band is cut off


def test_a_measure_that_falls():
    evaluate = {"metrics": [], "better": "lower"}
    runs = [
        a_run("a", values=(2.5, 0.5), evaluate=evaluate),
        a_run("b", 0, (0.0, 300.0), (2.5, 1.0), evaluate=evaluate),
    ]
    for plot, heading in ((over_time, "Loss over virtual time"), (over_bytes, "Loss over bytes")):
        figure = plot(runs, 0.75)
        draw(figure)
        (axes,) = figure.axes
        assert figure.get_suptitle() == heading
        assert axes.get_ylabel() == "test loss"
        assert named(axes)["a"].get_ydata().tolist() == [2.5, 0.5]
        assert "target loss 0.75" in [text.get_text() for text in axes.texts]
        assert not any("%" in label.get_text() for label in axes.get_yticklabels())


def test_nan_and_infinity_are_not_drawn():
    seconds = (0.0, 60.0, 120.0)
    runs = [
        a_run("a", 0, seconds, (0.1, 0.4, math.inf), (0, 1, 2)),
        a_run("b", 0, seconds, (math.nan,) * 3, (0, 1, 2)),
        *(a_run("c", seed, seconds, (0.1, seed / 10, math.inf), (0, 1, 2)) for seed in range(3)),
    ]
    figure = over_time(runs, None)
    draw(figure)
    (axes,) = figure.axes
    assert axes.get_ylim()[1] < 50
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]


def test_seeds_that_never_overlap_still_have_a_mean():
    runs = [a_run("a", seed, (50.0 + seed,), (0.4 + seed / 5,), (7 + seed,)) for seed in (0, 1)]
    for plot in (over_time, over_bytes):
        figure = plot(runs, 0.5)
        draw(figure)
        np.testing.assert_allclose(named(figure.axes[0])["a"].get_ydata(), 50)


def test_accuracy_over_bytes_counts_both_ways():
    figure = over_bytes([a_run("a", down=(0, 1000)), a_run("b", down=(0, 3000))], 0.4)
    draw(figure)
    (axes,) = figure.axes
    np.testing.assert_allclose(named(axes)["b"].get_xdata(), [0, 6])
    assert "(kB)" in axes.get_xlabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]  # a ends in mid-plot


def test_names_at_equal_ends_are_moved_apart():
    figure = over_time([a_run(label) for label in "abc"], None)
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


def test_staleness_shares_sum_to_one_for_each_algorithm():
    visits = [(i, stale, 0.0, 1.0, "counted") for i, stale in enumerate([1, 1, 1, 5])]
    visits += [(9, 30, 0.0, 1.0, "unused"), (9, None, 0.0, 1.0, "lost")]
    runs = [
        a_run("late", visits=visits),
        a_run("sync", visits=[(0, 0, 0.0, 1.0, "counted")] * 3),
        a_run("idle"),
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


def test_staleness_that_is_always_zero_has_a_readable_axis():
    figure = staleness([a_run("sync", visits=[(0, 0, 0.0, 1.0, "counted")])])
    draw(figure)
    low, high = figure.axes[0].get_xlim()
    assert low < 0
    assert high >= 4


def test_a_few_very_stale_updates_do_not_squeeze_the_rest():
    visits = [(0, stale, 0.0, 1.0, "counted") for stale in [*range(120)] * 9 + [5000]]
    figure = staleness([a_run("a", visits=visits)])
    draw(figure)
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < 130
    assert "bars of 2; the largest are beyond the edge" in axes.get_xlabel()
    assert "maximum 5000" in axes.get_title(loc="right")
    shares = axes.patches[0].get_data().values
    assert shares.sum() == pytest.approx(100 * 1080 / 1081)  # of all updates, drawn or not


def test_timeline_puts_the_fastest_client_first():
    a = [
        (7, 0, 0.0, 40.0, "counted"),
        (3, 0, 0.0, 10.0, "counted"),
        (3, 1, 10.0, 20.0, "unused"),
        (5, None, 0.0, 1.0, "lost"),  # always lost: its speed is unknown
    ]
    b = [(4, 0, 5.0, 25.0, "counted")]
    figure = timeline([a_run("a", visits=a), a_run("b", visits=b), a_run("c")])
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


def test_timeline_shows_the_first_seed():
    runs = [a_run("a", seed, visits=[(seed, 0, 0.0, 10.0 + seed, "counted")]) for seed in (1, 0)]
    (axes,) = timeline(runs).axes
    assert bars(axes)["counted"] == [(0.0, 11.0, 0)]


def test_timeline_ends_early_with_too_many_bars():
    visits = [(c, 0, 100.0 * i, 100.0 * i + 90, "counted") for i in range(40) for c in range(80)]
    figure = timeline([a_run("a", visits=visits)])
    draw(figure)
    (axes,) = figure.axes
    drawn = bars(axes)["counted"]
    assert len(drawn) == 18 * 80  # 1,500 begin before 1,800 s
    assert max(end for _, end, _ in drawn) <= axes.get_xlim()[1] == 30
    assert axes.get_xlabel() == "virtual time (minutes; the first 30 min of 1 h 6 min)"


def test_timeline_ends_before_bars_are_too_short_to_see():
    visits = [(0, 0, 1000.0 * i, 1000.0 * i + 2, "counted") for i in range(9)]
    figure = timeline([a_run("a", visits=visits)])
    draw(figure)
    assert figure.axes[0].get_xlim() == (0, 120)
    assert bars(figure.axes[0])["counted"] == [(0.0, 2.0, 0)]


def test_timeline_leaves_out_clients_evenly():
    visits = [(c, 0, 0.0, 100.0 + c, "counted") for c in range(1999)]
    figure = timeline([a_run("a", visits=visits)])
    draw(figure)
    drawn = bars(figure.axes[0])["counted"]
    assert len(drawn) == 100
    assert figure.get_supylabel() == "100 of 1,999 clients"
    assert [row for *_, row in drawn] == list(range(100))


def test_timeline_begins_with_the_first_visit():
    visits = [(0, 0, 3600.0 + 1000 * i, 3600.0 + 1000 * i + 2, "counted") for i in range(9)]
    figure = timeline([a_run("a", visits=visits)])
    draw(figure)
    (axes,) = figure.axes
    assert bars(axes)["counted"] == [(0.0, 2.0, 0)]
    assert axes.get_xlim() == (0, 120)
    assert axes.get_xlabel() == "virtual time since the first visit, at 1 h (seconds; the first 2 min of 2 h 13 min)"


def test_timeline_has_room_for_visits_of_slow_worlds():
    fast = [(0, 0, 10.0 * i, 10.0 * i + 10, "counted") for i in range(2000)]
    slow = [(1, 0, 100 + 1000.0 * i, 1100 + 1000.0 * i, "counted") for i in range(20)]
    figure = timeline([a_run("fast", visits=fast), a_run("slow", visits=slow)])
    draw(figure)
    assert figure.axes[1].get_xlim() == (0, 85)  # minutes: 100 s and five visits of 1,000 s
    assert len(bars(figure.axes[1])["counted"]) == 5
    # Room for the slow ones ends where the fast ones are too many: after 6,000 bars in all.
    very_fast = [(0, 0, float(i), i + 1.0, "counted") for i in range(9000)]
    very_slow = [(1, 0, 9000.0 * i, 9000.0 * (i + 1), "counted") for i in range(2)]
    figure = timeline([a_run("fast", visits=very_fast), a_run("slow", visits=very_slow)])
    assert [len(bars(axes)["counted"]) for axes in figure.axes] == [5999, 1]


def test_timeline_of_runs_without_visits():
    draw(timeline([a_run("a")]))


def test_labels_are_plain_text():
    run = a_run(r"a $\frac{$ & <b>")
    for figure in (over_time([run], 0.3), over_bytes([run], None), staleness([run]), timeline([run])):
        draw(figure)


def test_nothing_global_is_left_changed():
    before = dict(matplotlib.rcParams)
    over_time([a_run("a")], 0.3)
    assert dict(matplotlib.rcParams) == before
