from offbeat.report.page.visit_data import participation_data, timeline_data
from tests.report.example_runs import WORLD, a_run

# (client, staleness, assigned, ended, outcome)
VISITS = [
    (7, 0, 0.0, 10.0, "counted"),
    (7, 1, 10.0, 20.0, "counted"),
    (3, None, 0.0, 30.0, "lost"),
    (5, 0, 0.0, 15.0, "counted"),
]


def population(clients):
    return {"population": {**WORLD["population"], "clients": clients}}


def test_the_time_line_has_a_row_for_each_client_the_fastest_first():
    data = timeline_data([a_run("a", 4, visits=VISITS), a_run("a", 5)])
    assert data["clients"] == [7, 5, 3]
    assert data["rows"] == "3 clients"
    assert data["note"] == "Seed 4."
    assert data["title"] == "virtual time (seconds)"
    (visits,) = data["visits"]
    assert visits["row"] == [0, 0, 2, 1]
    assert visits["begin"] == [0, 10, 0, 0]
    assert visits["end"] == [10, 20, 30, 15]
    assert [data["outcomes"][outcome] for outcome in visits["outcome"]] == ["counted", "counted", "lost", "counted"]
    assert visits["staleness"] == [0, 1, None, 0]


def test_the_time_line_of_many_visits_is_cut():
    many = [(client % 300, 0, float(client), client + 10.0, "counted") for client in range(50_000)]
    data = timeline_data([a_run("a", visits=many)])
    assert len(data["visits"][0]["row"]) <= 6000
    assert data["rows"] == "100 of 300 clients"
    assert "the first" in data["title"]


def test_participation_is_of_all_clients_the_most_active_first():
    runs = [a_run("a", visits=VISITS, config=population(4)), a_run("b", config=population(4))]
    first, second = participation_data(runs)["curves"]
    assert (first["x"], first["y"]) == ([25, 50, 75, 100], [2, 1, 0, 0])
    assert first["note"] == "25 % of the clients; 50 % have none"
    assert second["note"] == "no counted updates"
    assert second["y"] == [0, 0]


def test_participation_is_the_mean_of_the_seeds_at_each_rank():
    other = [(1, 0, 0.0, 1.0, "counted")] * 4
    runs = [a_run("a", 0, visits=VISITS, config=population(2)), a_run("a", 1, visits=other, config=population(2))]
    (curve,) = participation_data(runs)["curves"]
    assert curve["y"] == [3, 0.5]


def test_a_million_clients_are_a_few_points():
    visits = [(client, 0, 0.0, 1.0, "counted") for client in range(5000)]
    (curve,) = participation_data([a_run("a", visits=visits, config=population(1_000_000))])["curves"]
    assert len(curve["x"]) == len(curve["y"]) <= 302
    assert curve["x"][-1] == 100
    assert curve["note"] == "0.25 % of the clients; 99.5 % have none"
