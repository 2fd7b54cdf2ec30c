from offbeat.client_metrics import STATISTICS
from offbeat.report.page.results import columns
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run, client_run


def table(runs):
    return {column.name: column.cells for group in columns(summarise(runs)) for column in group}


def test_each_text_has_its_number():
    runs = [a_run("fedavg", 0, (0.1, 0.5), [(2, "counted")]), a_run("b", 0, (0.1, 0.4), [(None, "lost")])]
    cells = table(runs)
    assert [(cell.text, cell.value) for cell in cells["Final accuracy"]] == [("50.0 %", 0.5), ("40.0 %", 0.4)]
    assert [(cell.text, cell.value) for cell in cells["Time to 50 %"]] == [("1 min 40 s", 100), ("–", None)]
    assert [(cell.text, cell.value) for cell in cells["Max staleness"]] == [("2", 2), ("–", None)]
    assert all(cell.value is not None for name, (cell, _) in cells.items()), cells


def test_the_statistics_over_clients_and_privacy_have_numbers():
    spent = {"epsilon": [0.0, 1.0, 1.5], "epsilon_replace_one": [0.0, 2.0, 4.0]}
    cells = table([client_run("a", **spent)])
    assert cells["Clients' accuracy, worst tenth"][0].value == 0.15
    assert cells["ε, replace one"][0].value == 4
    assert len([name for name in cells if name.startswith("Clients'")]) == len(STATISTICS)
    assert all(cell.value is not None for name, (cell,) in cells.items() if cell.text != "–"), cells
