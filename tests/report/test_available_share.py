import pytest

from offbeat.report import plots
from offbeat.report.available_share import available_share
from offbeat.report.page.curve_data import curve_data
from tests.report.example_runs import WORLD, a_run, draw

HOUR, DAY = 3600.0, 86_400.0


def phones(label="a", seconds=(0, 2 * DAY), **availability):
    kind = {"name": "quiet_hours", "hours": 8.0, "first_hour": 22.0, "spread_hours": 0.0, **availability}
    population = {**WORLD["population"], "availability": kind}
    return a_run(label, seconds=seconds, config={"population": population})


def test_phones_that_charge_from_ten_to_six():
    found = available_share([phones()], 2 * DAY)
    assert (found.edges / HOUR).tolist() == [0, 6, 22, 30, 46, 48]
    assert found.shares.tolist() == [1, 0, 1, 0, 1]


def test_a_share_in_between_where_starts_are_spread():
    found = available_share([phones(spread_hours=8.0)], DAY)
    share_at = dict(zip((found.edges / HOUR).tolist(), found.shares.tolist(), strict=False))
    # Windows of 8 h begin from 22 to 6 h: a quarter before midnight, and a quarter ends after noon.
    assert share_at[0.0] == pytest.approx(0.25, abs=0.05)
    assert max(share_at.values()) == 1
    noon = max(edge for edge in share_at if edge <= 12)
    assert share_at[noon] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    "runs",
    [
        [phones(spread_hours=24.0)],  # hardly varies
        [phones(name="bernoulli")],
        [phones(path="hours.csv")],
        [phones(), phones(hours=4.0)],
        [phones(hours="8")],
        [a_run(config={"population": {**WORLD["population"], "availability": "mine.py:hours"}})],
        [a_run()],
    ],
)
def test_nothing_is_shown_where_it_does_not_vary_or_is_not_known(runs):
    assert available_share(runs, DAY) is None
    assert curve_data(runs, None)["available"] is None


def test_nothing_is_shown_of_days_too_many_to_see():
    assert available_share([phones()], 31 * DAY) is None


def test_charts_show_it_over_time():
    runs = [phones(), phones("b")]
    assert curve_data(runs, None)["available"] == {"edges": [0, 6, 22, 30, 46, 48], "shares": [100, 0, 100, 0, 100]}
    assert "clients are available" in draw(plots.curves("seconds", runs, None)).axes[0].get_xlabel()
    assert "available" not in draw(plots.curves("bytes", runs, None)).axes[0].get_xlabel()
