import pytest

from offbeat.service.live.participation_curve import participation


@pytest.mark.parametrize(
    ("counts", "gini"),
    [
        ([3, 3, 3, 3], 0.0),
        ([0, 0, 0, 8], 3 / 4),  # 1 − 1/N
        # The mean absolute difference of 1, 2, 3 over all ordered pairs is 8/9; half of it over the mean 2.
        ([3, 1, 2], 8 / 9 / 2 / 2),
    ],
)
def test_the_gini_coefficient(counts, gini):
    assert participation(counts)["gini"] == pytest.approx(gini, abs=1e-12)


def test_the_curve_begins_with_the_busiest_client():
    assert participation([1, 5, 0, 3])["curve"] == [[0, 5], [1, 3], [2, 1], [3, 0]]
    assert participation([1, 5, 0, 3])["without"] == 1


def test_of_many_clients_the_curve_has_some_with_the_first_and_the_last():
    curve = participation(range(100_000))["curve"]
    assert 32 <= len(curve) <= 64
    assert curve[0] == [0, 99_999]
    assert curve[-1] == [99_999, 0]
    assert all(count == 99_999 - place for place, count in curve)


def test_before_the_first_update():
    assert participation([0, 0])["gini"] is None
    assert participation([]) == {"curve": [], "gini": None, "without": 0}
