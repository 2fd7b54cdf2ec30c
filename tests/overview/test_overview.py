import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.overview.entries import entries
from offbeat.overview.page import entries_of, overview_page, update_overview, write_overview
from offbeat.overview.server import OverviewServer
from offbeat.runs.directory import lock_folder
from offbeat.sweeps.record import Searched, write_record
from offbeat.sweeps.search_space import Numbers

SHORT = ("--set", "stop.virtual_seconds=30", "--algorithm", "fedbuff")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_toml):
    """A folder with two experiments of one run each, and a page."""
    from click.testing import CliRunner

    from offbeat.cli.main import app

    folder = tmp_path_factory.mktemp("work")
    (folder / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for more in (("--set", "name=one"), ("--set", "name=two", "--set", "local.lr=0.125")):
            CliRunner().invoke(app, ["compare", "tiny.toml", *SHORT, *more], catch_exceptions=False)
    return folder / "runs"


def by_folder(folder, known=(), **how):
    return {entry["folder"]: entry for entry in entries(folder, known, **how)}


def test_commands_keep_the_page_up_to_date(runs):
    found = {entry["folder"]: entry for entry in entries_of((runs / "index.html").read_text(encoding="utf-8"))}
    assert found == by_folder(runs)
    assert set(found) == {"one", "two"}
    assert found["one"]["algorithms"] == ["fedbuff"]
    assert (found["one"]["report"], found["one"]["progress"], found["one"]["problem"]) == ("report.html", None, "")
    different = {key for key, value in found["one"]["settings"].items() if found["two"]["settings"][key] != value}
    assert different == {"local.lr"}
    assert found["two"]["settings"]["local.lr"] == "0.125"
    assert found["two"]["results"][-1]["values"].keys() == {"fedbuff"}


def test_what_did_not_change_is_not_read_again(runs, monkeypatch):
    known = [dict(entry, finding="as before") for entry in entries(runs)]
    assert [entry["finding"] for entry in entries(runs, known)] == ["as before"] * 2
    os.utime(runs / "one" / "report.html")
    assert [by_folder(runs, known)[name]["finding"] == "as before" for name in ("one", "two")] == [False, True]
    late = by_folder(runs, seconds=0)
    assert [entry["problem"] for entry in late.values()] == ["not read yet: `offbeat ui` reads it"] * 2
    assert by_folder(runs, list(late.values())) == by_folder(runs)


def test_progress_and_what_is_broken(runs, tmp_path):
    copy = tmp_path / "copy"
    for name in ("done", "stopped", "running", "broken"):
        (copy / name).mkdir(parents=True)
        (copy / name / "fedbuff-seed1").symlink_to(runs / "one" / "fedbuff-seed1", target_is_directory=True)
    (copy / "stopped" / "fedbuff-seed2.unfinished").mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    lock = {"process": gone.pid, "runs": [f"fedbuff-seed{seed}" for seed in (1, 2, 3, 4)]}
    (copy / "stopped" / ".lock").write_text(json.dumps(lock), encoding="utf-8")
    (copy / "broken" / "fedbuff-seed1").unlink()
    (copy / "broken" / "fedbuff-seed1").mkdir()
    searched = Searched("a", "accuracy", "higher", (1, 2), 5, {"fedbuff": {"local.lr": Numbers(0, 1, False)}})
    write_record(searched, {"fedbuff": []}, copy / "running")
    with lock_folder(copy / "running", ".sweep.lock"):
        found = by_folder(copy)
    assert next(iter(found)) == "running"
    assert found["done"]["progress"] is None
    assert found["stopped"]["progress"] == {"running": False, "done": 1, "runs": 4, "share": 0.25}
    assert found["running"]["progress"] == {"running": True, "done": 1, "runs": 10, "share": 0.1}
    assert "config.toml is missing" in found["broken"]["problem"]


def test_a_page_of_somebody_else_and_folders_of_others_stay(runs, tmp_path):
    (tmp_path / "index.html").write_text("mine", encoding="utf-8")
    assert write_overview(tmp_path) is None
    update_overview(tmp_path / "out", is_default=True)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == "mine"
    (tmp_path / "a").mkdir()
    update_overview(tmp_path / "a" / "out", is_default=False)  # --output out
    assert not list((tmp_path / "a").iterdir())
    assert entries_of("mine") == entries_of('<script type="application/json" id="data">{"entries": 3}</script>') == []


def get(server, path, host=None):
    request = urllib.request.Request(server.url + path, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def refusal(server, *request, **how):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(server, *request, **how)
    refused.value.close()
    return refused.value.code


@pytest.fixture
def server(runs):
    with OverviewServer(runs) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_server_gives_reports_and_nothing_else(server, runs):
    assert {entry["folder"] for entry in json.loads(get(server, "entries.json"))} == {"one", "two"}
    assert get(server, "one/report.html") == (runs / "one" / "report.html").read_bytes()
    (runs.parent / "secret.html").write_text("secret", encoding="utf-8")
    hidden = (
        "../secret.html",
        "%2e%2e/secret.html",
        "one/fedbuff-seed1/model.safetensors",
        "one",
        "no.html",
        "%00.html",
    )
    assert {refusal(server, path) for path in hidden} == {404}
    # A name that points here, of another site.
    assert refusal(server, "entries.json", host=f"example.org:{server.server_port}") == 403
    with pytest.raises(OffbeatError, match=rf"^--port {server.server_port}: .*: choose another port$"):
        OverviewServer(runs, server.server_port)


def test_a_folder_that_is_missing_is_one_line(offbeat, tmp_path):
    code, out, err = offbeat("ui", str(tmp_path / "no"))
    assert (code, out) == (2, "")
    assert err == f"offbeat: {tmp_path / 'no'} is not a folder: name a folder of experiments, such as runs\n"


@pytest.mark.long
def test_the_page_filters_compares_and_follows(browser, server, runs, tmp_path):
    browser.open(runs / "index.html")
    assert browser.find("#count").text == "2 experiments"
    browser.find("#search").send_keys("local.lr = 0.125")
    assert browser.texts("#entries b") == ["two"]
    assert browser.console() == browser.requested() == []

    browser.visit(server.url)
    for box in browser.all("#entries input"):
        box.click()
    assert browser.texts("#differences tr") == ["Setting two one", "local.lr 0.125 0.1"]
    for width, dark in ((400, True), (1280, False), (1920, True)):
        browser.look(width, dark)
        browser.wait_until_drawn()
        assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.barriers() == []
    searched = Searched("<b>", "accuracy", "higher", (1, 2), 5, {"fedbuff": {"local.lr": Numbers(0, 1, False)}})
    with lock_folder(runs / "moving", ".sweep.lock"):
        write_record(searched, {"fedbuff": []}, runs / "moving")
        for _ in range(100):
            if "running" in browser.find("#count").text:
                break
            browser.driver.execute_async_script("setTimeout(arguments[0], 50)")
        assert browser.find("#count").text == "2 experiments and 1 sweep, 1 running"
        assert browser.texts("#entries .state") == ["running: 0 of 10 runs done, 0 %"]
    assert browser.find("#differences tbody").text == "local.lr 0.125 0.1"  # what was selected stays
    assert browser.console() == []
    browser.find('[aria-label="Report of one"]').click()
    assert Path(browser.driver.current_url).name == "report.html"
    assert browser.find("h1").text == "one"
    (runs / "moving" / "sweep.json").unlink()


def test_texts_of_others_are_data(tmp_path):
    page = overview_page(tmp_path, [{"folder": "</script><b>", "finished": ""}])
    assert "</script><b>" not in page
    assert entries_of(page) == [{"folder": "</script><b>", "finished": ""}]


def test_a_name_that_is_not_utf_8(runs, tmp_path):
    (tmp_path / os.fsdecode(b"a\xff")).symlink_to(runs / "one", target_is_directory=True)
    page = write_overview(tmp_path).read_text(encoding="utf-8")
    assert entries_of(page)[0]["folder"] == os.fsdecode(b"a\xff")
    assert write_overview(tmp_path).read_text(encoding="utf-8") == page
