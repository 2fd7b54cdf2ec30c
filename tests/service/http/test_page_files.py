import re
from importlib import resources

import pytest

import offbeat.web
from offbeat.service.http.page_files import PageFiles

LIVE = resources.files(offbeat.web) / "live"
NAMES = sorted(path.name for path in LIVE.iterdir())


@pytest.mark.parametrize("name", [*NAMES, "uplot.js", "uplot.css"])
def test_each_file_is_answered_with_its_type(name):
    answer = PageFiles().answer(name)
    kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rpartition(".")[2]]
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert len(answer.body) == int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("name", ["", "uplot.LICENSE", "../__init__.py", "__init__.py", "live", "/etc/passwd", "start"])
def test_other_names_are_not_files(name):
    assert PageFiles().answer(name) is None


def test_a_browser_that_has_the_file_gets_it_not_again():
    files = PageFiles()
    known = files.answer("start.js").headers["etag"]
    answer = files.answer("start.js", known)
    assert (answer.status_code, answer.body) == (304, b"")
    assert "content-security-policy" in answer.headers
    assert files.answer("live.css", known).status_code == 200


def test_the_policy_allows_no_inline_code_and_no_other_host():
    policy = dict(
        part.strip().split(" ", 1)
        for part in PageFiles().answer("index.html").headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    for name in ("script-src", "style-src", "connect-src"):
        assert policy[name] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert not {"unsafe-inline", "unsafe-eval", "*", "http:", "https:"} & set(
        re.split("[ ']", " ".join(policy.values()))
    )


def test_the_page_itself_has_nothing_inline_and_names_files_that_exist():
    page = (LIVE / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:|<script>", page)
    assert set(re.findall(r'(?:src|href)="live/([\w.]+)"', page)) <= {*NAMES, "uplot.js", "uplot.css"}
    assert not re.search(r"(?:src|href)=\"(?!live/|data:,)", page)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_scripts_put_text_in_as_text(name):
    script = (LIVE / name).read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://",
        script.replace("http://www.w3.org/2000/svg", ""),
    )
    assert set(re.findall(r'from "\./([\w.]+)"', script)) <= set(NAMES)
    assert len(script.splitlines()) < 300
