import pytest
from offbeat_core.errors import OffbeatError

from offbeat_studies.papers.displacement.figure import displacement_result, load_displacement
from studies.tests.papers.displacement import studies

TABLES = {
    "reproduction": {"paper": "A study", "figure": "Uploads", "question": "Which?"},
    "scales": {"medium": {"minutes": 1}},
    "displacement": studies.SECTION,
    "claims": [
        {
            "name": "FedFa is like FedBuff",
            "quantity": "ratio",
            "of": "fedfa",
            "size": 5,
            "low": 0.9,
            "high": 1.1,
            "paper": "–",
            "ours": True,
            "headline": True,
        },
        {"name": "It scales", "quantity": "best", "of": "all", "low": -1.2, "high": -0.8, "paper": "–", "ours": True},
    ],
}


def figure(tmp_path, **displacement):
    tables = TABLES | {"displacement": studies.SECTION | displacement}
    return load_displacement(tmp_path / "uploads.toml", tables)


def test_the_record_has_a_finding_for_each_claim_and_m(tmp_path, monkeypatch):
    made = studies.study(studies.collapse)
    monkeypatch.setattr("offbeat_studies.papers.displacement.figure.read_points", lambda *_: made.points)
    result = displacement_result(figure(tmp_path), "medium", tmp_path)
    record = result.record(tmp_path, "chart")
    assert [one.claim for one in record.findings] == [
        "FedFa is like FedBuff, M = 5",
        "FedFa is like FedBuff, M = 10",
        "FedFa is like FedBuff, M = 20",
        "It scales",
    ]
    assert {one.evidence for one in record.findings} == {"ours"}
    assert {one.statement for one in record.findings} == {"FedFa is like FedBuff", "It scales"}
    assert record.seeds == tuple(studies.SECTION["seeds"])
    assert record.command == f"offbeat papers {record.name} --scale medium --seeds 10"
    assert (tmp_path / record.figures[0]).read_bytes().startswith(b"\x89PNG")
    row = next(line for line in record.table.splitlines() if line.startswith("| 20 | 10 | 18.5 |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3].startswith("0.054 (0.05")  # the best x is 1
    assert all(0.93 <= float(cell.removeprefix("× ")) <= 1.07 for cell in cells[6:])


@pytest.mark.long
def test_censored_runs_are_marked(tmp_path, monkeypatch):
    made = studies.study(studies.collapse, budget=250)  # 10 τ_u, so at K = 20, M = 20 nearly all are
    monkeypatch.setattr("offbeat_studies.papers.displacement.figure.read_points", lambda *_: made.points)
    record = displacement_result(figure(tmp_path), "medium", tmp_path).bare_record()
    table = displacement_result(figure(tmp_path, world=made.section.world.model_dump()), "medium", tmp_path).table()
    assert record.findings
    assert "≥ 2" in table


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"small_lr": 0.5}, "small_lr must differ from world.lr"),
        ({"seeds": [4, 5]}, "seeds must differ from tuning_seeds"),
        ({"x": [0.5, 1.0]}, "displacement.x"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, change, line):
    with pytest.raises(OffbeatError, match=line) as caught:
        figure(tmp_path, **change)
    assert "\n" not in str(caught.value)


def test_a_new_setting_changes_the_fingerprint(tmp_path):
    before = figure(tmp_path).fingerprint("medium")
    assert figure(tmp_path).fingerprint("medium") == before
    assert figure(tmp_path, bounded_from=0.4).fingerprint("medium") != before
