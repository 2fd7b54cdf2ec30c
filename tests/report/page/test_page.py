import base64
import hashlib
import re

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


def test_the_same_runs_give_the_same_page(runs):
    assert rendered(runs)[0] == rendered(runs)[0]


def test_the_algorithms_are_in_rows(runs):
    _, page = rendered(runs)
    columns = page.columns()
    assert columns["Algorithm"] == ["fedbuff", "fedavg", "slow"]
    assert [text.partition(" ")[0] for text in columns["Final accuracy"]] == ["93.0", "43.0", "73.0"]
    assert columns["Max staleness"] == ["2", "2", "2"]
    assert {header["scope"] for header in page.all("th")} == {"row", "col"}
    assert page.tables["versions"][1:] == [["torch", "2.9"], ["numpy", "2.3"]]
    assert len(page.all("details")) == 3


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


def test_texts_are_escaped(tmp_path):
    evil = "</script><script>alert(1)</script><!--\"'&"
    runs = [saved(tmp_path, "fedavg"), saved(tmp_path, "fedbuff")]
    runs[0].config["name"] = evil
    object.__setattr__(runs[1], "label", evil)
    text, page = rendered(runs, title=evil, command=evil)
    assert len(page.all("script")) == 2  # data and program
    assert text.count("<!--") == 0
    assert page.texts["h1"] == evil
    assert page.texts["title"].startswith(evil)
    assert page.data["labels"][1]["name"] == evil
    assert page.columns()["Algorithm"] == ["fedavg", evil]


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
    assert "a, seed 2 is unfinished: read up to 300 virtual seconds." in page.texts["p#results-notes"]
