import json

from offbeat_core.serving.console_log import event, log, write_logs


def test_an_event_is_a_line_of_json(capsys):
    level, handlers = log.level, list(log.handlers)
    try:
        write_logs(20)
        event("receive", client=3, visit=1)
        event("not shown", 10)
        assert not log.propagate  # or the root's handlers would write it again
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)
        log.propagate = True
    (line,) = capsys.readouterr().err.splitlines()
    logged = json.loads(line)
    assert (logged["event"], logged["level"], logged["client"], logged["visit"]) == ("receive", "info", 3, 1)
    assert logged["time"].startswith("20")
