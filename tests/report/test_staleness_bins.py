import math

import pytest

from offbeat.report.staleness_bins import staleness_bins
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run


def visits(*staleness):
    return [(value, "lost" if value is None else "counted") for value in staleness]


def test_bars_and_mean_are_those_of_the_seeds_not_of_all_updates():
    runs = [a_run("a", 0, visits=visits(0, 0, 2, None)), a_run("a", 1, visits=visits(1))]
    bins = staleness_bins(runs)
    assert bins.edges.tolist() == [-0.5, 0.5, 1.5, 2.5]
    # 2/3, 0, 1/3 of the first seed's three updates and 0, 1, 0 of the other's one; means 2/3 and 1.
    assert bins.histograms["a"].shares.tolist() == pytest.approx([100 / 3, 50, 50 / 3])
    assert bins.histograms["a"].mean == pytest.approx(5 / 6)
    in_table = summarise(runs)[0].mean_staleness
    assert in_table
    assert bins.histograms["a"].mean == pytest.approx(in_table.mean)
    assert bins.histograms["a"].largest == 2
    assert bins.note == "staleness (versions made during the visit)"


def test_a_few_very_stale_updates_are_beyond_the_edge():
    bins = staleness_bins([a_run("a", visits=visits(*[0, 1] * 200, 500))])
    assert bins.edges[-1] == 1.5
    assert bins.note.endswith("; the largest values are not drawn)")
    assert bins.histograms["a"].shares.sum() == pytest.approx(100 * 400 / 401)


def test_wide_ranges_have_bars_of_several_versions():
    bins = staleness_bins([a_run("a", visits=visits(*range(600)))])
    assert bins.width == 10
    assert len(bins.edges) <= 61
    assert "10 in a bar" in bins.note


def test_a_label_without_counted_updates_has_no_bars():
    histogram = staleness_bins([a_run("a", visits=visits(None))]).histograms["a"]
    assert not len(histogram.shares)
    assert math.isnan(histogram.mean)
