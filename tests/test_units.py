import pytest

from offbeat import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (2110, "35 min 10 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (4325, "1 h 12 min"),
        (86399, "1 d"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_durations(seconds, text):
    assert units.duration(seconds) == text


def test_a_duration_is_followed_by_its_half_width_in_one_unit():
    assert units.duration(4325, 192) == "72.1 ± 3.2 min"
    assert units.duration(2110, 25) == "35.2 ± 0.4 min"
    assert units.duration(2110, 0.0) == "35 min 10 s"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (960, "960 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (1.24e9, "1.2 GB"), (3e15, "3,000.0 TB")],
)
def test_sizes(size, text):
    assert units.size(size) == text


def test_a_number_takes_the_unit_of_another_unless_it_would_be_zero_in_it():
    assert units.size(3.1e6, like=234e3) == "3,100.0 kB"
    assert units.size(234.6e3, 1e3, like=3e6) == "0.2 ± 0.0 MB"
    assert units.size(20.0, like=3e6) == "20 B"
    assert units.duration(40.0, 127.1, like=300.0) == "0.7 ± 2.1 min"
    assert units.duration(90.0, like=20.0) == "90.0 s"
    assert units.duration(2.0, like=300.0) == "2.0 s"


def test_other_units():
    assert units.percent(0.8312) == "83.1 %"
    assert units.percent(0.8312, 0.0041) == "83.1 ± 0.4 %"
    assert units.percent(0.8312, 0.0004) == "83.1 ± 0.0 %"
    assert units.percent(0.8312, 0.0) == "83.1 %"
    assert (units.level(0.8), units.level(0.985)) == ("80 %", "98.5 %")
    assert (units.factor(3.42), units.factor(0.854)) == ("×3.4", "×0.85")
    assert (units.factor(1.0), units.factor(1.004), units.factor(1.024)) == ("×1.0", "×1.00", "×1.02")
    assert (units.factor(65.84), units.factor(1459.4)) == ("×65.8", "×1,459")
    assert (units.count(12345.0), units.count(12345.0, 61.0)) == ("12,345", "12,345 ± 61")
    assert [units.time_unit(t)[1] for t in (179, 180, 10_800, 172_801)] == ["seconds", "minutes", "hours", "days"]


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (0.4532, None, "0.453"),
        (0.4532, 0.0123, "0.453 ± 0.012"),
        (0.05123, 0.0021, "0.0512 ± 0.0021"),
        (-1.234, None, "-1.23"),
        (12.34, 0.5, "12.3 ± 0.5"),
        (123.4, None, "123"),
        (1234.5, 10.2, "1,234 ± 10"),
        (0.0, None, "0.000"),
        (0.0, 0.5, "0.000 ± 0.500"),
        (0.00004532, None, "4.53e-05"),
        (2.5e7, 1e6, "2.5e+07 ± 1e+06"),
        (float("nan"), None, "nan"),
        (float("inf"), None, "inf"),
    ],
)
def test_numbers_of_any_size_have_three_digits(value, half_width, text):
    assert units.number(value, half_width) == text
