import io
import tarfile
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.devices import bandwidth_traces
from offbeat.population.devices.bandwidth_traces import load_traces

CONTENT = b"0.5 8\n1.5\t4.0\r\n\n3.5 0\n4 0.8\n"  # the 8 counts for nothing


def write_tar(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def check(trace):
    assert trace.seconds.tolist() == [0.0, 1.0, 3.0, 3.5]
    assert trace.bytes_per_second.tolist() == [500_000.0, 0.0, 100_000.0]


def test_one_file(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(CONTENT)
    (trace,) = load_traces(str(path))
    check(trace)
    assert trace.name == str(path)


def other(megabits):
    return f"0 1\n1 {megabits}\n".encode()


def rates(found):
    return [trace.bytes_per_second[0] / 125_000 for trace in found]


def test_a_folder_in_the_order_of_the_names(tmp_path):
    for name, content in {"b": other(2), "a/z/x": other(1), "c": other(3), ".hidden": b"x", "a/.DS_Store": b""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = load_traces(tmp_path)
    assert rates(found) == [1, 2, 3]
    assert found[0].name == str(tmp_path / "a/z/x")


@pytest.mark.parametrize(("name", "mode"), [("t.tar", "w"), ("t.tar.gz", "w:gz"), ("t.tgz", "w:gz")])
def test_an_archive(tmp_path, name, mode):
    path = write_tar(tmp_path / name, {"b": other(2), "x/._b": b"x", "a/x": CONTENT, "../up": other(7)}, mode)
    found = load_traces(path)
    assert rates(found) == [7, 4, 2]
    check(found[1])
    assert "a/x" in found[1].name
    assert str(path) in found[1].name
    assert [found.name for found in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "too few rows"),
        (b"0 1\n1 2 3\n", "line 2: '1 2 3' is not a row of seconds and Mbit/s"),
        (b"time mbps\n0 1\n1 1\n", "line 1: 'time mbps' is not a row"),
        (b"\xff\x00 1\n1 1\n", "line 1: .* is not a row"),
        (b"0 1\n1 nan\n", "line 2: '1 nan' is not finite, or its bandwidth is below 0"),
        (b"0 1\ninf 1\n", "line 2: 'inf 1' is not finite"),
        (b"0 1\n1 inf\n", "line 2: '1 inf' is not finite"),
        (b"0 1\n1 -1\n", "line 2: '1 -1' is not finite, or its bandwidth is below 0"),
        (b"0 1\n1 1\n1 1\n", "line 3: '1 1' is not after the row before it"),
        (b"5 1\n4 1\n", "line 2: '4 1' is not after"),
        (b"-1e20 1\n1 1\n2 1\n", "line 3: '2 1' is not after"),
        (b"0 1\n1 0\n2 0\n", "carries 0 bytes in 2 seconds"),
        (b"0 1\n1e-4 1000\n", "carries 12500 bytes in 0.0001 seconds: it must last at least 1 ms"),
        (b"0 1\n1 1e308\n", "carries inf bytes"),
        (b"-1e308 1\n1e308 0\n", "carries nan bytes"),
    ],
)
def test_other_content_is_refused(tmp_path, content, reason):
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(OffbeatError, match=reason) as caught:
        load_traces(path)
    assert str(path) in str(caught.value)


def test_the_message_names_the_file_in_an_archive(tmp_path):
    path = write_tar(tmp_path / "t.tar", {"a": CONTENT, "b\n": b"0 1\n0 1\n"}, "w")
    with pytest.raises(OffbeatError, match=r"t\.tar: 'b\\n', line 2"):
        load_traces(path)


def test_paths_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(OffbeatError, match=r"cannot read .*none: No such file"):
        load_traces(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OffbeatError, match="empty does not hold any trace file"):
        load_traces(tmp_path / "empty")
    path = write_tar(tmp_path / "t.tar.gz", {"a": CONTENT * 1}, "w:gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(OffbeatError, match=r"cannot read .*t.tar.gz"):
        load_traces(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from(["", ".tar", ".tgz"]))
def test_any_bytes_are_read_or_refused(tmp_path, data, suffix):
    """Of any bytes, and of an archive some bytes of which are others."""
    if suffix and data.draw(st.booleans()):
        content = bytearray(write_tar(tmp_path / "a", {"a": CONTENT}, "w" if suffix == ".tar" else "w:gz").read_bytes())
        for place in data.draw(st.lists(st.integers(0, min(len(content), 600) - 1), min_size=1, max_size=4)):
            content[place] = data.draw(st.integers(0, 255))
    else:
        content = data.draw(st.binary(max_size=60))
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    try:
        load_traces(path)
    except OffbeatError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017


def test_limits(tmp_path, monkeypatch):
    folder = tmp_path / "traces"
    folder.mkdir()
    for index in range(4):
        (folder / str(index)).write_bytes(CONTENT)
    archive = write_tar(tmp_path / "t.tar", {str(index): CONTENT for index in range(4)}, "w")
    monkeypatch.setattr(bandwidth_traces, "_MOST_FILES", 3)
    for path in (folder, archive):
        with pytest.raises(OffbeatError, match=f"{path} holds more than 3 files"):
            load_traces(path)
    monkeypatch.setattr(bandwidth_traces, "_MOST_FILES", 4)
    assert len(load_traces(folder)) == len(load_traces(archive)) == 4
    monkeypatch.setattr(bandwidth_traces, "_LARGEST_TOTAL", len(CONTENT) * 4 - 1)
    with pytest.raises(OffbeatError, match=f"more than 4 files or {len(CONTENT) * 4 - 1} bytes"):
        load_traces(folder)
    monkeypatch.setattr(bandwidth_traces, "_LARGEST_FILE", len(CONTENT) - 1)
    for path in (folder, folder / "0"):
        with pytest.raises(OffbeatError, match=f"0 is larger than {len(CONTENT) - 1} bytes"):
            load_traces(path)
    monkeypatch.setattr(bandwidth_traces, "_LARGEST_TOTAL", 2**20)
    with pytest.raises(OffbeatError, match=f"'0' is larger than {len(CONTENT) - 1} bytes"):
        load_traces(archive)


def test_a_bomb_takes_no_memory(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "t.tar.gz", {"a": bytes(30_000_000)}, "w:gz")
    monkeypatch.setattr(bandwidth_traces, "_LARGEST_TOTAL", 2**20)
    tracemalloc.start()
    with pytest.raises(OffbeatError, match="is larger than 1,048,576 bytes"):
        load_traces(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20


LONG_NAME, HUGE = tarfile.TarInfo("././@LongLink"), tarfile.TarInfo("a")
LONG_NAME.type, LONG_NAME.size = tarfile.GNUTYPE_LONGNAME, 1
HUGE.size = 2**70


@pytest.mark.parametrize(
    "content",
    [(LONG_NAME.tobuf() + b"x".ljust(512, b"\0")) * 3000, HUGE.tobuf(tarfile.GNU_FORMAT) + bytes(2048)],
    ids=["long names without end", "a huge member"],
)
def test_hostile_archives_are_refused(tmp_path, content):
    (tmp_path / "t.tar").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"^cannot read .*t\.tar: .+$"):
        load_traces(tmp_path / "t.tar")
