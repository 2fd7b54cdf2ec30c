"""The log of a server: what is written where, and how often."""

import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.serving import console_log
from offbeat_core.serving.console_log import Repeats, event, log, logs_of_child, write_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_event_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    write_logs("info")
    event("evaluated", client=3, visit=1)
    event("receive", logging.DEBUG)
    assert not log.propagate  # or the root's handlers would write it again
    (line,) = capsys.readouterr().err.splitlines()
    logged = json.loads(line)
    assert (logged["event"], logged["level"], logged["client"], logged["visit"]) == ("evaluated", "info", 3, 1)
    assert logged["time"].startswith("20")


def test_a_terminal_gets_lines_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    write_logs("debug")
    event("run_ended", logging.WARNING, version=30, name="ward\x1b[2J 3", loss=0.25193, config={"a": 1}, by=None)
    event("clients", numbers=[3, 4], url="https://host:8443")
    lines = [line.split(" ", 2)[2] for line in sys.stderr.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == [
        r"WARNING run ended version=30 name='ward\x1b[2J 3' loss=0.2519",
        "INFO    clients numbers=[3, 4] url=https://host:8443",
    ]


def test_the_journal_gets_the_level_as_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        monkeypatch.setattr(sys, "stderr", stream)
        write_logs("info")
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            event("disk_full", level, problem="no space")
    assert (tmp_path / "journal").read_text().splitlines() == [
        f"<{priority}>disk full problem='no space'" for priority in (6, 4, 3)
    ]


def test_a_file_is_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_log, "_FILE_BYTES", 200)
    write_logs("info", tmp_path / "log")
    assert logs_of_child("front-1") == ("info", tmp_path / "log.front-1")
    for number in range(100):
        event("evaluated", version=number)
    log.handlers[0].close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 200
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["version"] == 99


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OffbeatError, match=r"^cannot write --log-file .*: No such file or directory: name"):
        write_logs("info", tmp_path / "missing" / "log")


def test_trouble_that_repeats_is_one_line_a_minute() -> None:
    now = [0.0]
    repeats = Repeats(lambda: now[0])

    def is_logged(name: str, level: int = logging.WARNING, **fields: Any) -> dict[str, Any] | None:
        record = logging.LogRecord("", level, "", 0, name, None, None)
        record.fields = fields
        return vars(record)["fields"] if repeats.filter(record) else None

    assert is_logged("refused", kind="busy") == {"kind": "busy"}
    assert is_logged("refused", kind="no-token") == {"kind": "no-token"}  # another kind is other trouble
    now[0] = 59.9
    assert [is_logged("refused", kind="busy") for _ in range(3)] == [None] * 3
    assert [is_logged("client enrolled", logging.INFO) for _ in range(3)] == [{}] * 3
    now[0] = 60.0
    assert is_logged("refused", kind="busy") == {"kind": "busy", "repeated": 3}
    now[0] = 120.0
    assert is_logged("refused", kind="busy") == {"kind": "busy"}


@pytest.mark.parametrize(("level", "lines"), [("info", 1), ("debug", 5)])
def test_debug_shows_every_line(level: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    write_logs(level)
    for _ in range(5):
        event("refused", logging.WARNING, kind="busy")
    assert len(capsys.readouterr().err.splitlines()) == lines
