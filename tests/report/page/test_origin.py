"""The line that says when, where and from which commit runs were made."""

import json

from offbeat.report.page.origin import origin
from tests.report.example_runs import a_run


def a_saved_run(folder, **timing):
    folder.mkdir()
    (folder / "timing.json").write_text(json.dumps({"real_seconds": 2.0, **timing}), encoding="utf-8")
    return a_run(path=folder)


def test_each_machine_and_commit_once(tmp_path):
    first = a_saved_run(tmp_path / "a", finished="2026-11-24T23:59:59+00:00", machine="small, 2 cores", commit="c0ffee")
    second = a_saved_run(tmp_path / "b", finished="2026-11-23T10:00:00+00:00", machine="small, 2 cores")
    assert origin([first, second]) == "2026-11-23 to 2026-11-24 · small, 2 cores · commit c0ffee"


def test_runs_of_earlier_versions_say_nothing(tmp_path):
    assert origin([a_saved_run(tmp_path / "a"), a_run(path=tmp_path / "absent")]) == ""
    (tmp_path / "a" / "timing.json").write_text("[]", encoding="utf-8")
    assert origin([a_run(path=tmp_path / "a")]) == ""
