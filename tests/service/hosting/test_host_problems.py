from offbeat.service.hosting.host_problems import host_problems


def test_a_server_that_needs_nobody_has_no_problems():
    assert host_problems(None, {}, {"retina": [], "lungs": []}) == []


def test_the_servers_own_problem_is_first_then_runs_that_have_failed():
    assert host_problems("no space", {"lungs": "ValueError: x"}, {"retina": ["It waits"]}) == [
        "The server's log cannot be written, so sites wait (no space): look at its disk",
        "lungs has failed (ValueError: x), and is opened again later: look at its file and the log",
        "retina: It waits",
    ]


def test_what_several_runs_say_is_one_sentence():
    at_work = {name: ["It waits"] for name in ("a", "b")} | {"c": ["Other"]}
    assert host_problems(None, {}, at_work) == ["a and b: It waits", "c: Other"]
    for number, listed in ((3, "r0, r1 and r2"), (4, "r0, r1, r2 and 1 more run"), (9, "r0, r1, r2 and 6 more runs")):
        at_work = {f"r{run}": ["It waits"] for run in range(number)}
        assert host_problems(None, {}, at_work) == [f"{listed}: It waits"]
