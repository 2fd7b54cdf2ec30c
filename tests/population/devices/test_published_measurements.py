import hashlib
import io
import tarfile

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.data.dataset import MissingDataError
from offbeat.population.devices import published_measurements
from offbeat.population.devices.distributions import phones

ARCHIVE = "bandwidth-3g-oboe.tar.gz"


@pytest.fixture(autouse=True)
def forgetful():
    """Nothing that one test has read is there for the next."""
    published_measurements.traces_3g_oboe.cache_clear()
    yield
    published_measurements.traces_3g_oboe.cache_clear()


def write_archive(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


class TestTraces:
    def test_it_says_where_to_get_them(self, nowhere):
        with pytest.raises(MissingDataError) as caught:
            published_measurements.traces_3g_oboe()
        assert str(caught.value) == (
            "The collection 3g-oboe of bandwidth traces is not here: clone "
            "https://github.com/confiwent/Real-world-bandwidth-traces, there tar -czf bandwidth-3g-oboe.tar.gz "
            "cooked_3gp traces_oboe and set OFFBEAT_DATA to the folder with it"
        )

    def test_others_are_refused(self, nowhere, monkeypatch):
        monkeypatch.setenv("OFFBEAT_DATA", str(nowhere))
        write_archive(nowhere / ARCHIVE, {"cooked_3gp/a": b"0 1\n1 2\n"})
        with pytest.raises(OffbeatError, match=rf"{ARCHIVE} does not hold the 508 traces of 3g-oboe: .* path in place"):
            published_measurements.traces_3g_oboe()

    def test_the_real_ones(self, real_data):
        real_data("traces", ARCHIVE)
        traces = published_measurements.traces_3g_oboe()
        assert ["cooked_3gp" in trace.name for trace in traces] == [True] * 80 + [False] * 428
        # They are slow enough for compression to matter, and none is as fast as a wire.
        means = np.array([trace.bytes_per_second @ np.diff(trace.seconds) / trace.seconds[-1] for trace in traces])
        assert 40_000 < means.min() < np.median(means) < means.max() < 720_000
        assert published_measurements.traces_3g_oboe() is traces
        with tarfile.open(real_data("traces", ARCHIVE) / ARCHIVE) as archive:
            name = "bw/cooked_3gp/norway_tram_43"
            rows = np.loadtxt(archive.extractfile(name))
        (trace,) = (trace for trace in traces if name in trace.name)
        np.testing.assert_allclose(trace.seconds, rows[:, 0] - rows[0, 0])
        np.testing.assert_allclose(trace.bytes_per_second, rows[1:, 1] * 1e6 / 8)

    def test_it_does_not_matter_how_the_real_ones_are_packed(self, real_data, tmp_path, monkeypatch):
        """As by the command that the error tells: without the folder above, in another order, with another time."""
        with tarfile.open(real_data("traces", ARCHIVE) / ARCHIVE) as archive:
            members = [member for member in archive if member.isfile()]
            files = {one.name.removeprefix("bw/"): archive.extractfile(one).read() for one in reversed(members)}
        write_archive(tmp_path / ARCHIVE, files)
        monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
        assert len(published_measurements.traces_3g_oboe()) == 508


class TestPhones:
    def test_another_file_is_refused(self, nowhere, monkeypatch):
        monkeypatch.setenv("OFFBEAT_DATA", str(nowhere))
        (nowhere / "ai-benchmark-phones.json").write_text("[]")
        with pytest.raises(OffbeatError, match=r"is not AI Benchmark's ranking of phones: its SHA-256 differs"):
            published_measurements.ai_benchmark()

    def test_the_published_name_is_found_too(self, nowhere, monkeypatch):
        (nowhere / "traces").mkdir()
        published = nowhere / "traces" / "raw_ai_benchmark_list.json"
        published.write_text("[]")
        monkeypatch.setenv("OFFBEAT_DATA", str(nowhere))
        changed = {published.name: hashlib.sha256(b"[]").hexdigest()}
        monkeypatch.setattr(
            published_measurements, "AI_BENCHMARK", published_measurements.Source("traces", "The ranking", "", changed)
        )
        assert published_measurements.ai_benchmark() == published

    def test_the_real_ones(self, real_data):
        real_data("traces", "ai-benchmark-phones.json")
        path = published_measurements.ai_benchmark()
        values = phones(20_000, path=path, median=0.1, seed=3, purpose=Purpose.DEVICE_SPEED)
        # 333 phones with scores from 212 to 76,206 and median 5,063.
        assert (values <= 0.1).mean() == pytest.approx(0.5, abs=0.02)
        assert values.min() == pytest.approx(0.1 * 5063 / 76_206)
        assert values.max() == pytest.approx(0.1 * 5063 / 212)
