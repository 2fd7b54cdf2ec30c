"""Example runs in folders, and the parts of a page."""

import json
from html.parser import HTMLParser

from offbeat.report.page.page import page
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run

_VOID = ("meta", "img", "link", "br", "input")


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
        self.tags, self.tables, self.texts, self._open = [], {}, {}, []
        self.feed(text)
        self.close()
        self.data = json.loads(self.texts["script#data"])

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in _VOID:
            self._open.append(f"{tag}#{attributes['id']}" if "id" in attributes else tag)
        if tag == "table":
            self._rows = self.tables.setdefault(attributes["id"], [])
        if tag == "tr":
            self._rows.append([])
        if tag in ("th", "td"):
            self._rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop().partition("#")[0] == tag

    def handle_data(self, data):
        if self._open:
            name = self._open[-1]
            self.texts[name] = self.texts.get(name, "") + data
            if {"th", "td"} & set(self._open):
                self._rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def columns(self, table="results"):
        """Return the cells of each column by its header."""
        return {name: cells for name, *cells in zip(*self.tables[table], strict=True)}


def rendered(runs, title="A title", command="offbeat compare x", target=None):
    text = page(runs, summarise(runs, target), title, command)
    return text, Page(text)
