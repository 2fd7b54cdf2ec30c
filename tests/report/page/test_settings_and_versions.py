import json
import tomllib

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.page.settings_and_versions import configurations, differing_settings, origin, package_versions
from tests.report.example_runs import a_run
from tests.report.page.saved_runs import saved


def test_the_configuration_has_all_seeds(tmp_path):
    runs = [saved(tmp_path, "a", seed) for seed in (3, 5)] + [saved(tmp_path, "b", 3)]
    found = configurations(runs)
    assert list(found) == ["a", "b"]
    config = tomllib.loads(found["a"])
    assert config["seeds"] == [3, 5]
    assert config["algorithms"] == {"a": {"server_lr": 0.5}}


def test_only_settings_that_differ_are_listed(tmp_path):
    runs = [saved(tmp_path, "fedbuff", 1), saved(tmp_path, "fedbuff", 2), saved(tmp_path, "slow", 1)]
    runs[2].config["algorithms"] = {"slow": {"algorithm": "fedbuff", "server_lr": 0.5, "staleness": {"name": "hinge"}}}
    runs[2].config["local"] = {"lr": 0.1, "adam": True}
    assert differing_settings(runs) == {
        "local.lr": ["–", "0.1"],
        "local.adam": ["–", "true"],
        "staleness.name": ["–", "hinge"],
    }
    runs[0].config["algorithms"]["fedbuff"]["server_lr"] = 2.0
    assert differing_settings(runs)["server_lr"] == ["2.0", "0.5"]


def test_the_versions_are_listed_with_differences(tmp_path):
    runs = [saved(tmp_path), saved(tmp_path, "b")]
    versions = json.loads((runs[1].path / "versions.json").read_text(encoding="utf-8"))
    (runs[1].path / "versions.json").write_text(json.dumps(versions | {"torch": "9.9"}), encoding="utf-8")
    assert package_versions(runs) == {"torch": "2.9, 9.9", "numpy": "2.3"}


@pytest.mark.parametrize("content", [None, "[1]"])
def test_unreadable_versions_are_one_line(content, tmp_path):
    run = saved(tmp_path)
    file = run.path / "versions.json"
    file.unlink() if content is None else file.write_text(content, encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"cannot read .*versions\.json; run a with seed 0 again"):
        package_versions([run])


def test_an_unfinished_run_may_not_have_versions_yet(tmp_path):
    run = saved(tmp_path, finished=False)
    (run.path / "versions.json").unlink()
    assert package_versions([run]) == {}


def a_saved_run(folder, **timing):
    folder.mkdir()
    (folder / "timing.json").write_text(json.dumps({"real_seconds": 2.0, **timing}), encoding="utf-8")
    return a_run(path=folder)


def test_each_machine_and_commit_once_as_far_as_runs_say(tmp_path):
    first = a_saved_run(tmp_path / "a", finished="2026-11-24T23:59:59+00:00", machine="small, 2 cores", commit="c0ffee")
    second = a_saved_run(tmp_path / "b", finished="2026-11-23T10:00:00+00:00", machine="small, 2 cores")
    silent = a_saved_run(tmp_path / "c")
    assert origin([first, silent, second]) == "2026-11-23 to 2026-11-24 · small, 2 cores · commit c0ffee"
    (tmp_path / "c" / "timing.json").write_text("[]", encoding="utf-8")
    assert origin([silent, a_run(path=tmp_path / "absent")]) == ""
