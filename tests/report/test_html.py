import base64
import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from offbeat.errors import OffbeatError
from offbeat.report import html as report_module
from offbeat.report.html import write_report
from tests.report.example_runs import a_run, client_run

PLOTS = ["accuracy_over_time", "accuracy_over_bytes", "staleness", "timeline"]


def saved(folder, label="a", seed=0, values=(0.1, 0.5), visits=((0, "counted"),), **fields):
    """Return an example run in a folder with its versions."""
    config = {"name": "<b>&", "seeds": [seed], "algorithms": {label: {"server_lr": 0.5}}}
    path = folder / "runs" / f"{label}-seed{seed}"
    run = a_run(label, seed, values, visits, config=config, path=path, **fields)
    run.path.mkdir(parents=True)
    (run.path / "versions.json").write_text(json.dumps({"torch": "2.9", "numpy": "2.3"}), encoding="utf-8")
    return run


class Page(HTMLParser):
    """The parts of a page that a browser would find."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.texts, self._open = [], [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "link", "br"):
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.texts[self._open[-1]] = self.texts.get(self._open[-1], "") + data
            if self._open[-1] in ("th", "td"):
                self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def table(self):
        return {name: cells for name, *cells in self.rows}


def report(runs, folder, title="A title", command="offbeat compare x", target=None):
    path = write_report(runs, folder, title, command, target)
    return path, Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def without_plots(monkeypatch):
    """Skip the plots, which take most of the time."""
    monkeypatch.setattr(report_module, "_plots", lambda *_: [])


def svgs(page):
    prefix = "data:image/svg+xml;base64,"
    sources = [image["src"] for image in page.all("img")]
    assert all(source.startswith(prefix) for source in sources)
    return [base64.b64decode(source.removeprefix(prefix)) for source in sources]


@pytest.mark.usefixtures("without_plots")
def test_the_table_of_the_report(tmp_path):
    runs = [
        saved(tmp_path, "fedbuff", 0, (0.1, 0.5), [(2, "counted"), (4, "counted")]),
        saved(tmp_path, "fedbuff", 1, (0.1, 0.7), [(3, "counted"), (None, "lost")]),
        saved(tmp_path, "fedavg", 0, (0.1, 0.2, 0.5), [(0, "counted"), (0, "counted")]),
        saved(tmp_path, "idle", 0, (0.1,), [(None, "lost")]),
    ]
    runs[-1].config["population"] = {"clients": 7}
    path, page = report(runs, tmp_path / "out")
    assert path == tmp_path / "out" / "report.html"
    table = page.table()
    assert page.rows[0] == ["", "fedbuff", "fedavg", "idle"]
    assert table["Final accuracy"] == ["60.0 ± 127.1 %", "50.0 %", "10.0 %"]
    assert table["Time to 50 %"] == ["1 min 40 s", "3 min 20 s", "–"]
    assert table["Speed-up"] == ["×2.0", "×1.0", "–"]
    assert table["Mean staleness"] == ["3.0", "0.0", "–"]
    assert table["Max staleness"] == ["4", "0", "–"]
    assert table["Sent to clients"] == ["1 B", "2 B", "0 B"]
    assert table["Real time"] == ["2.0 s"] * 3
    assert "The settings differ in population.clients," in path.read_text(encoding="utf-8")
    assert "Student's t) over 1 to 2 seeds" in page.texts["caption"]
    assert "\nidle did not make a version" in page.texts["caption"]
    assert re.search(r"caption \{[^}]*white-space: pre-line", page.texts["style"])  # or a browser would join the lines
    assert {header["scope"] for header in page.all("th")} == {"row", "col"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two folders with reports on the same two runs."""
    folder = tmp_path_factory.mktemp("reports")
    runs = [saved(folder, "a"), saved(folder, "b", values=(0.1, 0.3))]
    for name in ("one", "two"):
        report(runs, folder / name)
    return folder / "one", folder / "two"


def test_the_report_is_one_self_contained_file(written):
    text = (written[0] / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert attributes.get(name, "data:").startswith("data:")
    assert page.all("script") == page.all("link") == []
    assert not any(part in text for part in ("://", "url(", "@import", str(written[0].parent)))


def test_each_plot_is_a_complete_svg_with_an_alternative_text_and_a_png(written):
    page = Page((written[0] / "report.html").read_text(encoding="utf-8"))
    images = page.all("img")
    assert len(images) == len(PLOTS)
    assert all("a, b" in image["alt"] for image in images)
    for svg in svgs(page):
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(rb'href="(?!#)', svg)
    files = sorted((written[0] / "plots").iterdir())
    assert [file.name for file in files] == sorted(f"{name}.png" for name in PLOTS)
    assert all(file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for file in files)


def test_the_same_runs_give_the_same_bytes(written, files):
    assert files(written[0]) == files(written[1])
    assert len(files(written[0])) == 5


def test_the_timeline_of_many_visits_stays_small(tmp_path):
    run = saved(tmp_path, "a", visits=[(i % 7, ("counted", "unused")[i % 2]) for i in range(5000)])
    _, page = report([run], tmp_path / "out")
    assert max(len(svg) for svg in svgs(page)) < 500_000


def test_user_text_is_escaped(tmp_path):
    title, label = "<script>alert(1)</script> & co", 'a"><img src=x>'
    path, page = report([saved(tmp_path, label)], tmp_path / "out", title, command="offbeat <i> && x")
    assert page.texts["h1"] == page.texts["title"] == title
    assert not page.all("script")
    assert not page.all("i")
    assert len(page.all("img")) == len(PLOTS)
    assert page.rows[0] == ["", label]
    assert "offbeat <i> && x" in page.texts["code"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_plots")
def test_the_configuration_has_all_seeds(tmp_path):
    runs = [saved(tmp_path, "a", seed) for seed in (3, 5)] + [saved(tmp_path, "b", 3)]
    _, page = report(runs, tmp_path / "out")
    assert len(page.all("details")) == 2
    assert page.texts["summary"] == "ab"
    code = page.texts["code"]
    assert 'name = "<b>&"' in code
    assert "[algorithms.a]\nserver_lr = 0.5" in code
    assert re.findall(r"\d+", code.split("[data]")[0]) == ["3", "5"]


@pytest.mark.usefixtures("without_plots")
def test_the_versions_are_listed_with_differences(tmp_path):
    runs = [saved(tmp_path), saved(tmp_path, "b")]
    versions = json.loads((runs[1].path / "versions.json").read_text(encoding="utf-8"))
    (runs[1].path / "versions.json").write_text(json.dumps(versions | {"torch": "9.9"}), encoding="utf-8")
    table = report(runs, tmp_path / "out")[1].table()
    assert table["torch"] == ["2.9, 9.9"]
    assert table["numpy"] == ["2.3"]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("content", [None, "[1]"])
def test_unreadable_versions_are_one_line(content, tmp_path):
    run = saved(tmp_path)
    file = run.path / "versions.json"
    file.unlink() if content is None else file.write_text(content, encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"cannot read .*versions\.json; run a with seed 0 again"):
        report([run], tmp_path / "out")


@pytest.mark.usefixtures("without_plots")
def test_another_target_than_that_of_the_runs(tmp_path):
    table = report([saved(tmp_path, "a", values=(0.1, 0.5, 0.7))], tmp_path / "out", target=0.6)[1].table()
    assert table["Time to 60 %"] == ["3 min 20 s"]


def test_a_report_on_the_loss(tmp_path):
    run = saved(tmp_path, "a", values=(2.0, 0.7), evaluate={"metrics": [], "better": "lower", "target": 0.8})
    _, page = report([run], tmp_path / "out")
    assert page.table()["Final loss"] == ["0.700"]
    assert page.table()["Time to loss 0.8"] == ["1 min 40 s"]
    assert page.all("img")[0]["alt"].startswith("Line plot: test loss over virtual time for a.")
    assert "loss_over_time.png" in [file.name for file in (tmp_path / "out" / "plots").iterdir()]


def test_the_name_of_a_metric_cannot_leave_the_folder(tmp_path):
    report([saved(tmp_path, "a", evaluate={"metrics": ["../../x"]})], tmp_path / "out")
    assert (tmp_path / "out" / "plots" / "______x_over_time.png").exists()


@pytest.mark.usefixtures("without_plots")
def test_an_unfinished_run_is_reported_as_such(tmp_path):
    run = saved(tmp_path, "a", 2, [0.1] * 4, finished=False)
    (run.path / "versions.json").unlink()  # an unfinished run may not have it yet
    _, page = report([run], tmp_path / "out")
    assert "a, seed 2 is unfinished: read up to 300 virtual seconds." in page.texts["caption"]
    assert page.table()["Real time"] == ["–"]


def test_private_runs_are_drawn_over_what_they_spent(tmp_path):
    spent = {"epsilon": [0.0, 1.5], "epsilon_replace_one": [0.0, 4.0]}
    endless = {"epsilon": [0.0, math.inf], "epsilon_replace_one": [0.0, math.inf]}
    runs = [saved(tmp_path, "private", columns=spent), saved(tmp_path, "masked", columns=endless), saved(tmp_path, "c")]
    _, page = report(runs, tmp_path / "out")
    assert "Line plot: test accuracy over ε for private." in [image["alt"] for image in page.all("img")]
    assert (tmp_path / "out" / "plots" / "accuracy_over_epsilon.png").exists()
    _, others = report(runs[1:], tmp_path / "others")
    assert not [image for image in others.all("img") if "over ε" in image["alt"]]


def test_runs_that_clients_have_evaluated_have_a_plot_of_them(tmp_path):
    run = saved(tmp_path)
    on_clients = client_run(more={"path": run.path, "config": run.config})
    page = Page(write_report([on_clients], tmp_path, "t", "c").read_text(encoding="utf-8"))
    assert (tmp_path / "plots" / "accuracy_on_clients.png").exists()
    assert [image["alt"] for image in page.all("img") if "held-out" in image["alt"]] == [
        "Line plots: accuracy on the clients' held-out examples over virtual time, with the 10th and 90th percentile "
        "and the worst tenth, one panel each for a."
    ]
    assert page.table()["Clients' accuracy, worst tenth"] == ["15.0 %"]
