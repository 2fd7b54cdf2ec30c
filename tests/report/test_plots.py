import math

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from offbeat.report.page.curve_data import curve_data
from offbeat.report.plot_style import line_styles
from offbeat.report.plots import _apart, curves, staleness
from tests.report.example_runs import a_run, draw

MINUTE = (0.0, 60.0)


def named(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_accuracy_over_time_of_one_seed():
    runs = [a_run("a"), a_run("b", seconds=(0.0, 7200.0))]
    (axes,) = draw(curves("seconds", runs, 0.4)).axes
    lines = named(axes)
    np.testing.assert_allclose(lines["b"].get_xydata(), [[0, 10], [120, 50]])  # minutes, percent
    assert axes.get_xlabel() == "virtual time (minutes)"
    styles = line_styles(runs)
    assert [to_hex(lines[label].get_color()).upper() for label in "ab"] == [styles[label].colour for label in "ab"]
    (target,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert set(target.get_ydata()) == {40.0}
    assert "target 40 %" in [text.get_text() for text in axes.texts]
    assert axes.get_title(loc="right") == ""


def test_the_mean_of_the_seeds_is_bold_and_ends_where_the_first_ends():
    runs = [
        a_run("a", 0, seconds=MINUTE),
        a_run("a", 1, (0.1, 0.2, 0.8), seconds=(0.0, 30.0, 90.0)),
    ]
    (axes,) = draw(curves("seconds", runs, None)).axes
    # At 30 s: 0.3 and 0.2; at 60 s: 0.5 and 0.5.
    np.testing.assert_allclose(named(axes)["a"].get_xydata(), [[0, 10], [30, 25], [60, 50]])
    assert not [line for line in axes.lines if line.get_linestyle() == ":"]  # without a target
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert [len(line.get_xdata()) for line in thin] == [2, 3]
    assert axes.get_title(loc="right") == "thin: one seed, bold: mean of the seeds"


def test_the_band_is_the_confidence_interval_of_the_mean():
    runs = [a_run("a", seed, (0.1, value), seconds=MINUTE) for seed, value in enumerate((0.4, 0.5, 0.6, 0.5))]
    (axes,) = draw(curves("seconds", [*runs, a_run("b", seconds=MINUTE)], None)).axes
    (band,) = axes.collections  # one seed has none
    # At 60 s: s = √(200 / 3) %, t = 3.1824 for 3 degrees of freedom; 3.1824 · 8.165 / 2 = 12.99.
    # At 0 s the seeds agree.
    points = band.get_paths()[0].vertices
    assert sorted({round(y, 2) for x, y in points if x == 60}) == [pytest.approx(37.01), pytest.approx(62.99)]
    assert [y for x, y in points if x == 0] == pytest.approx([10] * sum(points[:, 0] == 0))
    assert not [line for line in axes.lines if line.get_linewidth() < 1]
    assert axes.get_title(loc="right") == "bold: mean of the seeds, shaded: its 95 % confidence interval"
    low, high = axes.get_ylim()
    assert low < 10 < 60 < high < 62.99  # all seeds are seen, a wide band is cut off


def test_a_diverged_run_does_not_set_the_range_and_is_named():
    config = {"evaluate": {"metrics": [], "better": "lower"}}
    runs = [a_run("a", seed, (2.0, 1.0 + seed), seconds=MINUTE, **config) for seed in (0, 1)]
    runs += [
        a_run("b", 0, (2.0, 1000.0), seconds=MINUTE, **config),
        a_run("b", 1, (2.0, 0.5), seconds=MINUTE, **config),
    ]
    (axes,) = draw(curves("seconds", runs, None)).axes
    assert axes.get_ylim() == pytest.approx((0.425, 2.075))
    assert axes.get_xlabel().split("\n")[1] == "Diverged, not in the range: b, seed 0."
    assert curve_data(runs, None)["note"] == "Diverged, not in the range: b, seed 0."
    assert [seed["diverged"] for seed in curve_data(runs, None)["seeds"]] == [False, False, True, False]
    (axes,) = draw(curves("seconds", runs[2:3], None)).axes
    assert axes.get_ylim()[1] > 1000


def test_a_measure_that_falls():
    evaluate = {"metrics": [], "better": "lower"}
    runs = [
        a_run("a", values=(2.5, 0.5), evaluate=evaluate),
        a_run("b", values=(2.5, 1.0), seconds=(0.0, 300.0), evaluate=evaluate),
    ]
    for over, heading in (("seconds", "Loss over virtual time"), ("bytes", "Loss over bytes")):
        figure = draw(curves(over, runs, 0.75))
        (axes,) = figure.axes
        assert figure.get_suptitle() == heading
        assert axes.get_ylabel() == "test loss"
        assert named(axes)["a"].get_ydata().tolist() == [2.5, 0.5]
        assert "target loss 0.75" in [text.get_text() for text in axes.texts]
        assert not any("%" in label.get_text() for label in axes.get_yticklabels())


def test_nan_and_infinity_are_not_drawn():
    runs = [
        a_run("a", 0, (0.1, 0.4, math.inf)),
        a_run("b", 0, (math.nan,) * 3),
        *(a_run("c", seed, (0.1, seed / 10, math.inf)) for seed in range(3)),
    ]
    (axes,) = draw(curves("seconds", runs, None)).axes
    assert axes.get_ylim()[1] < 50
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]


def test_seeds_that_never_overlap_still_have_a_mean():
    runs = [
        a_run("a", seed, (0.4 + seed / 5,), totals={"bytes_up": 7 + seed}, seconds=(50.0 + seed,)) for seed in (0, 1)
    ]
    for over in ("seconds", "bytes"):
        figure = draw(curves(over, runs, 0.5))
        np.testing.assert_allclose(named(figure.axes[0])["a"].get_ydata(), 50)


def test_accuracy_over_bytes_counts_both_ways():
    runs = [a_run(label, totals={"bytes_down": end, "bytes_up": 2 * end}) for label, end in (("a", 500), ("b", 2000))]
    (axes,) = draw(curves("bytes", runs, 0.4)).axes
    np.testing.assert_allclose(named(axes)["b"].get_xdata(), [0, 6])
    assert "(kB)" in axes.get_xlabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]  # a ends before the plot does


def test_names_at_equal_ends_are_moved_apart():
    (axes,) = draw(curves("seconds", [a_run(label) for label in "abc"], None)).axes
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
    figure = draw(staleness(runs))
    late, sync, idle = figure.axes
    assert late.patches[0].get_data().values.tolist() == [0, 75, 0, 0, 0, 25]
    assert late.patches[0].get_data().edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert late.get_title(loc="right") == "mean 2.0, maximum 5"
    assert sync.patches[0].get_data().values.tolist() == [100, 0, 0, 0, 0, 0]
    assert sync.get_ylim() == (0, pytest.approx(110))
    assert not idle.patches
    assert [text.get_text() for text in idle.texts] == ["no counted updates"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["late", "sync", "idle"]


def test_staleness_that_is_always_zero_has_a_readable_axis():
    figure = draw(staleness([a_run("sync", visits=[(0, 0, 0.0, 1.0, "counted")])]))
    low, high = figure.axes[0].get_xlim()
    assert low < 0
    assert high >= 4


def test_a_few_very_stale_updates_do_not_squeeze_the_rest():
    visits = [(0, stale, 0.0, 1.0, "counted") for stale in [*range(120)] * 9 + [5000]]
    (axes,) = draw(staleness([a_run("a", visits=visits)])).axes
    assert axes.get_xlim()[1] < 130
    assert "2 in a bar; the largest values are not drawn" in axes.get_xlabel()
    assert "maximum 5000" in axes.get_title(loc="right")
    shares = axes.patches[0].get_data().values
    assert shares.sum() == pytest.approx(100 * 1080 / 1081)  # of all updates, drawn or not


def test_labels_are_plain_text_and_the_global_style_is_not_changed():
    run, before = a_run(r"a $\frac{$ & <b>"), dict(matplotlib.rcParams)
    for figure in (curves("seconds", [run], 0.3), curves("bytes", [run], None), staleness([run])):
        draw(figure)
    assert dict(matplotlib.rcParams) == before
