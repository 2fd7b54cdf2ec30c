import logging
from contextvars import copy_context

from offbeat_core.serving.console_log import attached, event, run_at_work

from offbeat.service.live.recent_lines import RecentLines


def test_the_newest_lines_a_page_at_a_time():
    lines = RecentLines()
    with attached(lines):
        for number in range(1500):
            event("best_version", version=number, left_out=None)
        event("assign", logging.DEBUG)
        event("refused", logging.WARNING, kind="busy", path={1, 2})
    event("after", version=1)
    page = lines.page(None, 50)
    newest = page.entries[0]
    assert (newest.level, newest.kind, newest.facts["kind"]) == ("warning", "refused", "busy")
    assert (page.entries[1].kind, page.entries[1].facts) == ("best version", {"version": 1499})
    seen = page.entries
    while page.next is not None:
        page = lines.page(page.next, 50)
        seen += page.entries
    assert [line.number for line in seen] == list(range(1501, 501, -1))  # of 1,501 the newest 1,000


def test_trouble_that_repeats_is_a_line_a_minute():
    lines = RecentLines()
    with attached(lines):
        for _ in range(100):
            event("refused", logging.WARNING, kind="no-token")
        event("refused", logging.WARNING, kind="busy")
    assert [line.facts["kind"] for line in lines.page(None, 50).entries] == ["busy", "no-token"]


def test_a_warning_level_hides_no_lines(caplog):
    lines, log = RecentLines(), logging.getLogger("offbeat.service")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with attached(lines):
            event("ready")
        assert log.level == logging.WARNING
    finally:
        log.setLevel(level)
    assert [line.kind for line in lines.page(None, 50).entries] == ["ready"]


def test_lines_of_other_runs_are_left_out_also_once_another_run_has_ended():
    def of_run(name):
        run_at_work.set(name)
        lines = RecentLines()
        context = attached(lines)
        context.__enter__()
        return lines, context

    log = logging.getLogger("offbeat.service")
    before = log.level
    contexts = {name: copy_context() for name in ("night", "day")}
    made = {name: context.run(of_run, name) for name, context in contexts.items()}
    for name, context in contexts.items():
        context.run(event, f"of_{name}")
    event("of_the_server")
    made["night"][1].__exit__(None, None, None)
    contexts["day"].run(event, "later")
    assert [line.kind for line in made["night"][0].page(None, 9).entries] == ["of night"]
    assert [line.kind for line in made["day"][0].page(None, 9).entries] == ["later", "of day"]
    made["day"][1].__exit__(None, None, None)
    assert log.level == before
