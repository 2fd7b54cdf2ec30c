import pytest
from offbeat_core.errors import OffbeatError

import offbeat
from offbeat.algorithms import FedAvg, FedBuff


def test_of_one_history(simulate, tmp_path):
    path = simulate().report(tmp_path / "a" / "b")
    assert path == tmp_path / "a" / "b" / "report.html"
    assert "fedbuff" in path.read_text(encoding="utf-8")
    assert {path.name for path in path.parent.iterdir()} == {"plots", "report.html"}


def test_of_algorithms_with_several_seeds(simulate, tmp_path):
    algorithms = [FedAvg(cohort=4), FedBuff(buffer_size=2, concurrency=4)]
    histories = [simulate(algorithm=algorithm, seed=seed) for algorithm in algorithms for seed in (1, 2)]
    page = offbeat.write_report(histories, str(tmp_path)).read_text(encoding="utf-8")
    assert "seeds 1, 2" in page
    assert "fedavg" in page


def test_names_are_labels(simulate, tmp_path):
    falling = [simulate(local={"steps": 2, "batch_size": 8, "lr": 0.2}, seed=seed) for seed in (1, 2)]
    page = offbeat.write_report({"small": simulate(), "large": falling}, tmp_path).read_text(encoding="utf-8")
    assert "small" in page
    assert "large" in page
    assert ">fedbuff<" not in page


def test_changes_of_the_table_do_not_count(simulate, tmp_path):
    history = simulate()
    before = history.report(tmp_path / "same").read_bytes()
    history["accuracy"] = 0.5
    history.events["client"] = 3
    assert history.report(tmp_path / "same").read_bytes() == before


class TestMistakes:
    def test_histories_that_do_not_belong_together(self, simulate, tmp_path):
        one, other = simulate(), simulate(local={"steps": 2, "batch_size": 8, "lr": 0.2})
        for histories, problem in (([one, other], "differ in local.lr"), ([one, one], "have the same seed")):
            with pytest.raises(OffbeatError, match=rf"^the histories of fedbuff {problem}: name them, for instance "):
                offbeat.write_report(histories, tmp_path)
        with pytest.raises(OffbeatError, match=r"^'lr=0\.1': a name must be made of letters"):
            offbeat.write_report({"lr=0.1": one}, tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("histories", [[], {}, {"a": []}])
    def test_nothing(self, histories, tmp_path):
        with pytest.raises(OffbeatError, match=r"^there is no history to report on$"):
            offbeat.write_report(histories, tmp_path)

    @pytest.mark.parametrize("histories", [3, ["a"], {"a": 3}])
    def test_other_things(self, histories, tmp_path):
        with pytest.raises(OffbeatError, match=r"^a report is about histories .* type (int|str)$"):
            offbeat.write_report(histories, tmp_path)

    def test_a_folder_that_cannot_be_written(self, simulate, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(OffbeatError, match=r"^cannot write "):
            simulate().report(tmp_path / "file")
