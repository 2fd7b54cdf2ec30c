"""Pages in one file that load nothing: style, script and data are in them."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2

_HERE = "offbeat.web"


def render(
    template: str,
    style: str,
    script: str,
    data: Mapping[str, Any],
    *,
    title: str,
    connects: bool = False,
    **values: Any,
) -> str:
    """Return a page.

    ``template`` is its element ``main``, which gets ``title`` and ``values``. The page's policy allows its own style
    and its own script, by their hashes; one that ``connects`` may also ask its own server. The script finds ``data`` as
    JSON in the element of that id.
    """
    own_server = "connect-src 'self'; " if connects else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"{own_server}base-uri 'none'; form-action 'none'"
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    main = environment.from_string(template).render(title=title, **values)
    return environment.from_string(file_text(_HERE, "page.html")).render(
        title=title, policy=policy, style=style, script=script, data=as_json(data), main=main.rstrip()
    )


def script_of(*places: tuple[str, str]) -> str:
    """Return a script of files, a package and a name each; no other sees its names."""
    own = "\n".join(file_text(*place) for place in places)
    return f'(() => {{\n"use strict";\n{own}}})();\n'


def file_text(package: str, name: str) -> str:
    """Return the text of a file in a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def as_json(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand in a script element, whatever its texts are."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
