"""The page of a comparison: one HTML file that works offline."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2

from offbeat.report import table
from offbeat.report.finding import finding
from offbeat.report.line_styles import LineStyle, line_styles
from offbeat.report.page.clients_data import client_data, participation_data, timeline_data
from offbeat.report.page.curve_data import curve_data
from offbeat.report.page.results import columns, label_columns
from offbeat.report.page.settings_and_versions import configurations, differing_settings, origin, package_versions
from offbeat.report.staleness_bins import StalenessBins, staleness_bins
from offbeat.report.summary import Row
from offbeat.runs.directory import Run
from offbeat.runs.settings import world_of

_SCRIPTS = ("line_chart.js", "curves.js", "timeline.js", "tables.js", "start.js")


def page(runs: Sequence[Run], rows: Sequence[Row], title: str, command: str) -> str:
    """Return the page; the same runs give the same text.

    It loads nothing: its policy allows its own style and its own script, by their hashes.
    """
    styles = line_styles(runs)
    bins = staleness_bins(runs)
    style = _text("offbeat.web", "uplot.css") + _text("offbeat.report.page", "report.css") + _colours(styles)
    script = _script()
    return _template().render(
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=_json(_data(runs, rows, styles)),
        title=title,
        finding=finding(rows),
        origin=origin(runs),
        settings=differing_settings(runs),
        command=command,
        world=world_of(runs),
        labels=[
            {"name": label, "dashes": " ".join(f"{2.5 * part:g}" for part in s.dash)} for label, s in styles.items()
        ],
        columns=_columns(rows),
        caption=table.caption(rows),
        by_label=label_columns(runs),
        staleness=_panels(bins),
        bins=len(bins.edges) - 1,
        last_bin=int(bins.edges[-1] - 0.5),
        staleness_note=bins.note,
        configurations=configurations(runs),
        versions=package_versions(runs),
    )


def _data(runs: Sequence[Run], rows: Sequence[Row], styles: dict[str, LineStyle]) -> dict[str, Any]:
    return {
        "labels": [{"name": label, "dash": style.dash} for label, style in styles.items()],
        "curves": curve_data(runs, rows[0].target),
        "clients": client_data(runs, rows[0].measure),
        "participation": participation_data(runs),
        "timeline": timeline_data(runs),
    }


def _columns(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {"name": column.name, "cells": column.cells, "begins_group": place == 0}
        for group in columns(rows)
        for place, column in enumerate(group)
    ]


def _json(data: dict[str, Any]) -> str:
    """Return JSON that can stand in a script element, whatever its texts are."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _panels(bins: StalenessBins) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    for label, histogram in bins.histograms.items():
        shares = histogram.shares
        largest = float(shares.max()) if len(shares) else 0.0
        bars = [
            {"title": f"{_versions(low, bins.width)}: {share:.1f} %", "height": round(96 * share / (largest or 1.0), 2)}
            for low, share in zip((bins.edges[:-1] + 0.5).astype(int).tolist(), shares.tolist(), strict=False)
        ]
        note = "no counted updates"
        if bars:
            note = f"mean {histogram.mean:.1f}, maximum {histogram.largest}, highest bar {largest:.0f} %"
        panels.append({"label": label, "note": note, "bars": bars})
    return panels


def _versions(low: int, width: int) -> str:
    return f"staleness {low}" if width == 1 else f"staleness {low} to {low + width - 1}"


def _colours(styles: dict[str, LineStyle]) -> str:
    light = "".join(f".line-{place}{{color:{style.colour}}}" for place, style in enumerate(styles.values()))
    dark = "".join(f".line-{place}{{color:{style.dark_colour}}}" for place, style in enumerate(styles.values()))
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def _script() -> str:
    licence = _text("offbeat.web", "uplot.LICENSE")
    own = "\n".join(_text("offbeat.report.page", name) for name in _SCRIPTS)
    return f'/* uPlot\n\n{licence}*/\n{_text("offbeat.web", "uplot.js")}\n(() => {{\n"use strict";\n{own}}})();\n'


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("offbeat.report.page", "report.html"))
