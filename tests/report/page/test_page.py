import base64
import hashlib
import json
import re

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.page.page import write_report
from tests.report.page.saved_runs import rendered, saved


def test_the_page_is_one_file_that_asks_for_nothing(runs):
    text, page = rendered(runs)
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "poster"):
            assert attributes.get(name, "data:").startswith("data:")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert not re.search(r"url\(|@import", text)
    assert str(runs[0].path.parent) not in text


def test_the_policy_allows_the_own_style_and_script_only(runs):
    text, page = rendered(runs)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    for directive, pattern in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (content,) = re.findall(pattern, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_licence_of_the_plot_library_is_in_the_page(runs):
    text, _ = rendered(runs)
    assert "Copyright (c) 2022 Leon Sorokin" in text
    assert "The above copyright notice and this permission notice shall be included" in text


def test_the_algorithms_are_in_rows(runs):
    _, page = rendered(runs)
    columns = page.columns()
    assert columns["Algorithm"] == ["fedbuff", "fedavg", "slow"]
    assert [text.partition(" ")[0] for text in columns["Final accuracy"]] == ["93.0", "43.0", "73.0"]
    assert list(columns) == ["Algorithm", "Time to 50 %", "Speed-up", "Final accuracy", "Difference to fedavg"]
    costs = page.columns("costs")
    assert costs["Max staleness"] == ["2", "2", "2"]
    assert {"Versions", "Updates lost", "Sent to clients"} < costs.keys()
    assert "Best accuracy" in page.columns("more")
    assert (
        len([attributes for attributes in page.all("td") if "best" in attributes.get("class", "")]) == 4
    )  # fedavg missed 50 %
    assert {header["scope"] for header in page.all("th")} == {"row", "col"}
    assert page.tables["versions"][1:] == [["torch", "2.9"], ["numpy", "2.3"]]
    assert len(page.all("details")) == 4  # more measures, and the settings of each


def test_the_data_of_the_charts(runs):
    data = rendered(runs)[1].data
    assert [label["name"] for label in data["labels"]] == ["fedbuff", "fedavg", "slow"]
    assert len(data["curves"]["seeds"]) == 6
    assert len(data["participation"]["curves"]) == len(data["timeline"]["visits"]) == 3
    assert [curve["label"] for curve in data["clients"]["curves"]] == [0]


def test_a_bar_of_a_histogram_is_its_share(runs):
    text, _ = rendered(runs)
    bars = re.findall(r"<title>(staleness \d: [\d.]+ %)</title>", text)
    assert bars == ["staleness 0: 33.3 %", "staleness 1: 33.3 %", "staleness 2: 33.3 %"] * 3


def test_runs_without_counted_updates_or_seeds_to_average(tmp_path):
    _, page = rendered([saved(tmp_path, "idle", visits=[(None, "lost")])])
    assert page.data["curves"]["means"] == []
    assert "no counted updates" in page.texts["span"]


def test_a_report_on_the_loss(tmp_path):
    run = saved(tmp_path, "a", values=(2.0, 0.7), evaluate={"metrics": [], "better": "lower", "target": 0.8})
    _, page = rendered([run])
    assert page.columns()["Final loss"] == ["0.700"]
    (measure,) = page.data["curves"]["measures"]
    assert (measure["title"], measure["target"]) == ("test loss", 0.8)


def test_an_unfinished_run_is_reported_as_such(tmp_path):
    _, page = rendered([saved(tmp_path, "a", 2, [0.1] * 4, finished=False)])
    assert "a, seed 2 is unfinished: read up to 5 min of virtual time." in page.texts["p#results-notes"]


def measured(run, shares):
    (run.path / "labels.json").write_text(json.dumps(shares), encoding="utf-8")
    return run


def test_accuracies_by_label_are_means_of_the_seeds_in_the_order_of_the_labels(tmp_path):
    runs = [
        measured(saved(tmp_path, "a", 0), {"2": 0.5, "10": 1.0}),
        measured(saved(tmp_path, "a", 1), {"2": 0.75, "10": 0.0}),
        measured(saved(tmp_path, "b"), {"10": 0.25}),
        saved(tmp_path, "c"),
    ]
    _, page = rendered(runs)
    assert page.tables["by-label"] == [
        ["Algorithm", "2", "10"],
        ["a", "62.5 %", "50.0 %"],
        ["b", "–", "25.0 %"],
        ["c", "–", "–"],
    ]
    assert ("td", {"data-value": "0.625"}) in page.tags
    assert "by-label" not in rendered(runs[3:])[1].tables  # nobody has measured it


@pytest.mark.parametrize("content", ["no json", "[1]", '{"a": 1}', '{"1": "much"}'])
def test_broken_accuracies_by_label_are_one_line(content, tmp_path):
    run = saved(tmp_path)
    (run.path / "labels.json").write_text(content, encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"labels\.json is broken"):
        rendered([run])


PLOTS = ["accuracy_over_bytes", "accuracy_over_time", "staleness"]


def plots(folder):
    return sorted(path.stem for path in (folder / "plots").iterdir())


def test_a_page_and_a_png_for_each_figure_and_the_same_runs_give_the_same_bytes(tmp_path, files):
    runs = [saved(tmp_path, "a"), saved(tmp_path, "b", values=(0.1, 0.3))]
    for name in ("one", "two"):
        path = write_report(runs, tmp_path / name, "A title", "offbeat compare x")
        assert path == tmp_path / name / "report.html"
    assert plots(tmp_path / "one") == PLOTS
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in (tmp_path / "one/plots").iterdir())
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_other_figures_and_targets(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.report.page.page.png", lambda figure: b"")  # drawing takes long
    spent = {"epsilon": [0.0, 1.5], "epsilon_replace_one": [0.0, 4.0]}
    private = saved(tmp_path, "private", values=(0.1, 0.5, 0.7), columns={name: [0.0, *v] for name, v in spent.items()})
    text = write_report([private, saved(tmp_path, "c")], tmp_path, "t", "c", target=0.6).read_text(encoding="utf-8")
    assert plots(tmp_path) == sorted([*PLOTS, "accuracy_over_epsilon"])  # of the private run
    assert "Time to 60 %" in text
    assert "Time to 50 %" not in text
    # The name of a metric cannot leave the folder.
    write_report([saved(tmp_path, "a", evaluate={"metrics": ["../../x"]})], tmp_path, "t", "c")
    assert "______x_over_time" in plots(tmp_path)
