from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.csv_columns import check_numbers, check_rows, read_columns


def test_the_wanted_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfb,"c",a\r\n1,x,2.5\r\n\r\n"03",, nan')
    columns = read_columns(path, {"a": "float64", "b": "int64"})
    assert set(columns) == {"a", "b"}
    np.testing.assert_array_equal(columns["a"], [2.5, np.nan])
    assert columns["b"].tolist() == [1, 3]
    assert columns["b"].dtype == np.int64


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_file_as_an_editor_wrote_it(tmp_path, encoding, line_end):
    path = tmp_path / "a.csv"
    path.write_bytes(line_end.join(["é,a", "x,1", "ü,2", ""]).encode(encoding))
    assert read_columns(path, {"a": "int64"})["a"].tolist() == [1, 2]


def test_the_row_is_right_in_a_long_file(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["1.25"] * 400_000
    rows[300_000 - 2] = "oops"
    path.write_text("\n".join(["a", *rows]))
    with pytest.raises(OffbeatError, match=r"row 300000: a must be a number, not 'oops'"):
        read_columns(path, {"a": "float64"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no column 'a'"),
        (b"a\n1\n\n", None),
        (b"a,b\n1,2\n,3\n", "row 3: a is empty"),
        (b"a,b,a\n1,2,3\n", "more than one column 'a'"),
        (b"b,a\n1,2\nx,3\n4,y\n", "row 4: a must be a number, not 'y'"),
        (b"a\n1\n" + 500 * b"y" + b"\n", f"row 3: a must be a number, not '{80 * 'y'}'"),
        (b"b;a\n1;2\n", "separate the columns by commas"),
        (b"b\ta\n1\t2\n", "separate the columns by commas, not by tabs"),
        (b"\xff\n1\n", "is neither UTF-8 nor UTF-16 with its mark: save it as UTF-8"),
        (b"a,\xe9\n1,2\n", "is neither UTF-8 nor UTF-16 with its mark: save it as UTF-8"),
        ("a\n1\n".encode("utf-16") + b"x", "is neither UTF-8 nor UTF-16"),
        ("a\n1\nx".encode("utf-16"), "row 3: a must be a number, not 'x'"),
        (b"\x1f\x8b\x08\n1\n", "is neither UTF-8"),
        (b"a," * 1_000_000 + b"b\n1\n", "more than one column 'a'"),
        (b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
    ],
)
def test_other_files_are_refused(tmp_path, content, reason):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    if reason is None:
        assert read_columns(path, {"a": "float64"})["a"].tolist() == [1.0]
        return
    with pytest.raises(OffbeatError, match=reason) as caught:
        read_columns(path, {"a": "float64"})
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["none.csv", "", "a\0b"])
def test_files_that_cannot_be_read_are_named(tmp_path, name):
    with pytest.raises(OffbeatError, match=r"^cannot read .*: [^\n]+$"):
        read_columns(tmp_path / name, {"a": "float64"})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60)
    | st.text("a,-.0129einf\n\r\"' x", max_size=60).map(lambda text: b"a,b\n1,2\n" + text.encode())
)
def test_any_content_is_read_or_refused_in_one_line(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    try:
        columns = read_columns(path, {"a": "float64", "b": "int64"})
    except OffbeatError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert len(columns["a"]) == len(columns["b"]) > 0


def test_check_rows_names_the_first_wrong_row():
    check_rows(Path("a.csv"), np.array([False, False]), lambda index: pytest.fail("no row is wrong"))
    with pytest.raises(OffbeatError, match=r"^a\.csv, row 3: index 1$"):
        check_rows(Path("a.csv"), np.array([False, True, True]), lambda index: f"index {index}")


@pytest.mark.parametrize("value", [-1, 3])
def test_check_numbers(value):
    check_numbers(Path("a.csv"), "hour", np.array([0, 2]), 3, "hours")
    with pytest.raises(OffbeatError, match=rf"^a\.csv, row 4: hour is {value}, but the hours are 0 … 2$"):
        check_numbers(Path("a.csv"), "hour", np.array([0, 2, value]), 3, "hours")
