"""Pages of results: an index, a page for each paper, CSV files with all numbers."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from offbeat.report.export import write_file
from offbeat_studies.papers.figures.figure_result import FigureRecord, Key
from offbeat_studies.papers.results.csv_files import CLAIMS, SETTINGS, claims_csv, settings_csv
from offbeat_studies.papers.results.index_page import index_page
from offbeat_studies.papers.results.paper_page import paper_page
from offbeat_studies.papers.results.statement_chart import chart_name, draw_statements
from offbeat_studies.papers.results.statements import statements_of

IMAGES = "images"  # the folder of the figures, beside the pages


def write_pages(
    records: Sequence[FigureRecord], outdated: Collection[Key], missing: Mapping[str, Sequence[str]], folder: Path
) -> Path:
    """Write the pages, their charts and the CSV files; return the index's path.

    ``outdated`` are the records that were measured before their settings or claims changed, ``missing`` for each scale
    the files of the figures that have not been run at it.
    """
    papers: dict[str, list[FigureRecord]] = {}
    for one in records:
        papers.setdefault(one.page, []).append(one)
    for page, group in papers.items():
        write_file(folder / f"{page}.md", paper_page(group, outdated, IMAGES, folder).encode())
        draw_statements(statements_of(group, outdated), folder / IMAGES / chart_name(page))
    write_file(folder / CLAIMS, claims_csv(records, outdated))
    write_file(folder / SETTINGS, settings_csv(records, outdated))
    return write_file(folder / "index.md", index_page(papers, outdated, missing, IMAGES).encode())
