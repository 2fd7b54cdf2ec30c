import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.devices import distributions
from offbeat.population.devices.distributions import from_file, phones
from offbeat.uniform_numbers import uniform

N = 100_000
SOURCE = {"seed": 3, "purpose": Purpose.DEVICE_SPEED}
DISTRIBUTIONS = [
    (distributions.constant, {"value": 2.0}),
    (distributions.lognormal, {"median": 0.1, "sigma": 1.0}),
    (distributions.pareto, {"minimum": 0.1, "shape": 1.5}),
    (distributions.uniform_between, {"low": 0.5, "high": 2.0}),
    (distributions.exponential, {"mean": 2.0}),
    (distributions.half_normal, {"mean": 2.0}),
]
NORMAL = NormalDist()
QUANTILES = np.array([0.01, 0.1, 0.5, 0.9, 0.99, 0.999])


@pytest.mark.parametrize(
    ("distribution", "parameters", "quantile"),
    [
        (distributions.lognormal, {"median": 0.1, "sigma": 0.7}, lambda q: 0.1 * math.exp(0.7 * NORMAL.inv_cdf(q))),
        (distributions.pareto, {"minimum": 0.1, "shape": 1.5}, lambda q: 0.1 * (1 - q) ** (-1 / 1.5)),
        (distributions.uniform_between, {"low": 0.5, "high": 2.0}, lambda q: 0.5 + 1.5 * q),
        (distributions.exponential, {"mean": 2.0}, lambda q: -2.0 * math.log(1 - q)),
        (
            distributions.half_normal,
            {"mean": 2.0},
            lambda q: 2.0 * math.sqrt(math.pi / 2) * NORMAL.inv_cdf((1 + q) / 2),
        ),
    ],
)
def test_quantiles(distribution, parameters, quantile):
    values = distribution(N, **parameters, **SOURCE)
    below = np.searchsorted(np.sort(values), [quantile(q) for q in QUANTILES]) / N
    # The part of the values below the q-quantile has mean q and variance q (1 - q) / n.
    assert (np.abs(below - QUANTILES) < 4 * np.sqrt(QUANTILES * (1 - QUANTILES) / N)).all()


def test_a_distribution_without_spread_is_constant():
    assert distributions.constant(3, value=2.5, **SOURCE).tolist() == [2.5] * 3
    assert distributions.lognormal(3, median=0.3, sigma=0, **SOURCE).tolist() == [0.3] * 3


@pytest.mark.parametrize(("distribution", "parameters"), DISTRIBUTIONS)
def test_a_clients_value_does_not_depend_on_the_number_of_clients(distribution, parameters):
    few, many = (distribution(clients, **parameters, **SOURCE) for clients in (10, 1000))
    assert few.dtype == np.float64
    assert few.shape == (10,)
    np.testing.assert_array_equal(few, many[:10])


@pytest.mark.parametrize(("distribution", "parameters"), DISTRIBUTIONS[1:])
def test_seed_purpose_and_draw_tell_values_apart(distribution, parameters):
    sources = [
        {"seed": 3, "purpose": Purpose.BANDWIDTH},
        {"seed": 4, "purpose": Purpose.BANDWIDTH},
        {"seed": 3, "purpose": Purpose.DEVICE_SPEED},
        {"seed": 3, "purpose": Purpose.BANDWIDTH, "draw": 1},
    ]
    values = [distribution(1000, **parameters, **source) for source in sources]
    again = distribution(1000, **parameters, seed=3, purpose=Purpose.BANDWIDTH, draw=0)
    np.testing.assert_array_equal(values[0], again)
    correlations = np.corrcoef(np.log(values))
    assert np.abs(correlations - np.eye(4)).max() < 0.15


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_uniform_numbers_give_finite_positive_values(monkeypatch, u):
    monkeypatch.setattr(distributions, "uniform", lambda *args, **kwargs: np.array([u]))
    log = math.log(distributions.lognormal(1, median=1.0, sigma=1.0, **SOURCE)[0])
    # A float32 quantile would be infinite at the upper end.
    assert log == pytest.approx(NORMAL.inv_cdf(max(u, 2.0**-54)), rel=1e-9)
    assert 8 < abs(log) < 8.4
    assert distributions.pareto(1, minimum=1.0, shape=1.0, **SOURCE)[0] == pytest.approx(1 / (1 - u))
    for distribution in (distributions.exponential, distributions.half_normal):
        assert 0 < distribution(1, mean=1.0, **SOURCE)[0] < 40


@pytest.mark.parametrize(
    ("distribution", "parameters", "message"),
    [
        (distributions.lognormal, {"median": 1.0, "sigma": 1000.0}, "sigma = 1000.0 is too large"),
        (distributions.pareto, {"minimum": 1.0, "shape": 0.001}, "shape = 0.001 is too small"),
        (distributions.exponential, {"mean": 1e308}, r"mean = 1e\+308 is too large"),
        (distributions.half_normal, {"mean": 1e308}, r"mean = 1e\+308 is too large"),
    ],
)
def test_values_that_are_too_large_are_refused(distribution, parameters, message):
    with pytest.raises(OffbeatError, match=message):
        distribution(1000, **parameters, **SOURCE)


def test_from_file_in_order(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text("name,seconds\na,0.5\nb,2\nc,1e-3\n")
    values = from_file(3, path=path, column="seconds", **SOURCE)
    assert values.tolist() == [0.5, 2.0, 0.001]
    assert values.dtype == np.float64


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("seconds\n1\n2\n", "has 2 rows, but there are 3 clients"),
        ("seconds\n1\n0\n3\n", "row 3: seconds is 0.0, but must be above 0 and finite"),
        ("seconds\n1\n2\n-3\n", "row 4: seconds is -3.0"),
        ("seconds\ninf\n2\n3\n", "row 2: seconds is inf"),
    ],
)
def test_other_columns_are_refused(tmp_path, content, reason):
    path = tmp_path / "speeds.csv"
    path.write_text(content)
    with pytest.raises(OffbeatError, match=reason) as caught:
        from_file(3, path=path, column="seconds", **SOURCE)
    assert str(path) in str(caught.value)


@pytest.fixture
def ranking(tmp_path) -> Path:
    """Scores 400, 100, 1000 and 200: the median is 300."""
    records = [{"AI_Score": text} for text in (" 400 1,6", "100", "", "none", " 1000 ", "0", 7, None, "-5", "200x")]
    path = tmp_path / "phones.json"
    path.write_text(json.dumps([*records, {"Model": "A"}, "B", None]))
    return path


def test_a_phones_seconds(ranking):
    values = phones(2000, path=ranking, median=0.2, **SOURCE)
    assert values.dtype == np.float64
    expected = np.array([0.2 * 300 / 400, 0.2 * 300 / 100, 0.2 * 300 / 1000, 0.2 * 300 / 200])
    u = uniform(3, Purpose.DEVICE_SPEED, client=np.arange(2000))
    np.testing.assert_allclose(values, expected[np.floor(u * 4).astype(int)], rtol=1e-12)
    assert [np.isclose(values, value).mean() for value in expected] == pytest.approx([0.25] * 4, abs=0.05)


def test_a_clients_phone_depends_on_its_own_number_only(ranking):
    values = phones(1000, path=ranking, median=1.0, **SOURCE)
    np.testing.assert_array_equal(phones(10, path=str(ranking), median=1.0, **SOURCE), values[:10])
    for other in ({"seed": 4}, {"purpose": Purpose.BANDWIDTH}, {"draw": 1}):
        assert not np.array_equal(phones(1000, path=ranking, median=1.0, **(SOURCE | other)), values)


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_uniform_numbers(ranking, monkeypatch, u):
    monkeypatch.setattr("offbeat.population.devices.distributions.uniform", lambda *args, **kwargs: np.array([u]))
    assert phones(1, path=ranking, median=1.0, **SOURCE)[0] == (300 / 400 if u == 0 else 300 / 200)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[{", "cannot read"),
        (b"\xff\xfe\xfd", "cannot read"),
        (b"[" * 100_000, "cannot read"),
        (b"{}", "is not a list of phones"),
        (b"[]", "has no phone with a score"),
        (b'[{"AI_Score": "0"}]', "has no phone with a score"),
        (b'[{"AI_Score": "' + b"9" * 10_000 + b'"}]', "has no phone with a score"),
    ],
)
def test_other_lists_of_phones_are_refused(tmp_path, content, reason):
    path = tmp_path / "phones.json"
    path.write_bytes(content)
    with pytest.raises(OffbeatError, match=reason) as caught:
        phones(3, path=path, median=1.0, **SOURCE)
    assert str(path) in str(caught.value)


def test_a_list_that_is_too_large_is_refused(ranking, monkeypatch):
    monkeypatch.setattr("offbeat.population.devices.distributions._LARGEST_FILE", 100)
    with pytest.raises(OffbeatError, match="is larger than 100 bytes"):
        phones(3, path=ranking, median=1.0, **SOURCE)


@pytest.mark.parametrize("median", [1e308, 5e-324])
def test_the_median_is_out_of_range(ranking, median):
    with pytest.raises(OffbeatError, match=r"^median"):
        phones(3, path=ranking, median=median, **SOURCE)
