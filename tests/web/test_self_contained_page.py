"""Rules of a page in one file, and texts of others in it."""

import base64
import hashlib
import json
import re

import pytest

from offbeat.web.self_contained_page import render

STYLE, SCRIPT = "p{color:red}", "start(1 < 2);"


def page(**more):
    data = {"text": "</script><script>x()</script>&"}
    return render("<main>{{ title }}{{ name }}</main>", STYLE, SCRIPT, data, title="<b>", name="&", **more)


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("connects", [False, True])
def test_a_page_allows_its_own_style_and_script_and_perhaps_its_server(connects):
    (policy,) = re.findall('content="(default-src[^"]*)"', page(connects=connects))
    rules = dict(rule.split(" ", 1) for rule in policy.replace("&#39;", "'").split("; "))
    own = {"script-src": f"'sha256-{digest(SCRIPT)}'", "style-src": f"'sha256-{digest(STYLE)}'"}
    nothing = dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert rules == {**own, **nothing, "img-src": "data:", **({"connect-src": "'self'"} if connects else {})}


def test_texts_of_others_are_no_markup():
    html = page()
    assert "<main>&lt;b&gt;&amp;</main>" in html
    assert "<title>&lt;b&gt;</title>" in html
    assert html.count("</script>") == 2
    (data,) = re.findall('id="data">(.*)</script>', html)
    assert json.loads(data) == {"text": "</script><script>x()</script>&"}
    assert f"<script>{SCRIPT}</script>" in html
