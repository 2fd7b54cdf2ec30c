"""ε of a site over all runs of its server."""

import json
import math
from statistics import NormalDist

from offbeat.service.server.spent_privacy import composed, read_runs
from tests.service.hosting.conftest import hosting

DELTA, TOTAL = 1e-5, 4.0


def private(sigma, **settings):
    return {"algorithm": "fedasync", "privacy": {"noise_multiplier": sigma, "delta": DELTA}, **settings}


def delta_by_hand(mu):
    cdf = NormalDist().cdf
    return cdf(mu / 2 - TOTAL / mu) - math.exp(TOTAL) * cdf(-mu / 2 - TOTAL / mu)


def test_a_limit_holds_over_the_runs_that_go_on_and_those_that_are_over(tmp_path, offbeat):
    folder = tmp_path / "server"
    with hosting(folder) as server:
        server.create("over", **private(2.0, versions=1))
        site = server.enrol("ward 3")
        assert site.work() == "over"
        server.create("limited", **private(3.0, epsilon_total=TOTAL))
        assert [site.work() for _ in range(2)] == ["limited"] * 2
        server.create("beside", **private(2.0))
        counts = {"limited": 2, "beside": 0}
        while counts["beside"] < 30 and (run := site.work()) is not None:
            counts[run] += 1
            # Nobody takes part in the limited run once that would exceed the limit, whatever happens beside it.
            if run == "limited":
                assert delta_by_hand(math.sqrt(1 / 4 + counts["beside"] / 4 + counts["limited"] / 9)) <= DELTA
        assert counts["limited"] > 2
        assert site.at("limited").check_in() is None
        spent = composed(read_runs(folder))["site-0"]
        assert spent.runs == 3
        output = offbeat("server", "privacy", str(folder), "--json")[1]
        (listed,) = json.loads(output)["clients"]
        assert (listed["name"], listed["participations"]) == ("site-0", 1 + sum(counts.values()))
