import json
import math
from pathlib import Path

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.devices.speed_file import from_file, phones
from offbeat.uniform_numbers import uniform

SOURCE = {"seed": 3, "purpose": Purpose.DEVICE_SPEED}


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
    monkeypatch.setattr("offbeat.population.devices.speed_file.uniform", lambda *args, **kwargs: np.array([u]))
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
    assert "\n" not in str(caught.value)


def test_a_list_that_is_too_large_is_refused(ranking, monkeypatch):
    monkeypatch.setattr("offbeat.population.devices.speed_file._LARGEST_FILE", 100)
    with pytest.raises(OffbeatError, match="is larger than 100 bytes"):
        phones(3, path=ranking, median=1.0, **SOURCE)


@pytest.mark.parametrize("median", [0.0, -1.0, math.nan, math.inf, 1e308, 5e-324])
def test_the_median_is_out_of_range(ranking, median):
    with pytest.raises(OffbeatError, match=r"^median"):
        phones(3, path=ranking, median=median, **SOURCE)
