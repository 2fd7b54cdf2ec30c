import math

import pytest

from offbeat.training.trainers.distributed import idle_cores
from offbeat.training.trainers.distributed.idle_cores import IdleCores


def test_the_mean_is_idle_time_over_time(monkeypatch, tmp_path):
    statistics = tmp_path / "stat"
    monkeypatch.setattr(idle_cores, "_STATISTICS", statistics)
    monkeypatch.setattr(idle_cores.os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(idle_cores.time, "monotonic", lambda: next(clock))
    # user, nice, system, idle, iowait, …, in hundredths of a second, for all cores together
    statistics.write_text("cpu  100 7 50 4000 90 0 0 0 0 0\ncpu0 50 3 25 2000 45 0 0 0 0 0\n", encoding="ascii")
    idle = IdleCores()
    statistics.write_text("cpu  400 7 90 4600 99 0 0 0 0 0\ncpu0 50 3 25 2000 45 0 0 0 0 0\n", encoding="ascii")
    assert idle.mean() == pytest.approx(6.0 / 4.0)


@pytest.mark.parametrize("text", [None, "", "intr 5"])
def test_where_the_system_does_not_tell_all_cores_count_as_idle(text, monkeypatch, tmp_path):
    monkeypatch.setattr(idle_cores, "_STATISTICS", tmp_path / "stat")
    if text is not None:
        (tmp_path / "stat").write_text(text, encoding="ascii")
    assert IdleCores().mean() == math.inf
