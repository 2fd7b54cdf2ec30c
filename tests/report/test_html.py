from offbeat.report.html import write_report
from tests.report.page.saved_runs import saved

PLOTS = ["accuracy_over_bytes", "accuracy_over_time", "staleness"]


def plots(folder):
    return sorted(path.stem for path in (folder / "plots").iterdir())


def test_a_page_and_a_png_for_each_figure_and_the_same_runs_give_the_same_bytes(tmp_path, files):
    runs = [saved(tmp_path, "a"), saved(tmp_path, "b", values=(0.1, 0.3))]
    for name in ("one", "two"):
        path = write_report(runs, tmp_path / name, "A title", "offbeat compare x")
        assert path == tmp_path / name / "report.html"
    assert plots(tmp_path / "one") == PLOTS
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in (tmp_path / "one/plots").iterdir())
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_another_target_than_that_of_the_runs(tmp_path):
    run = saved(tmp_path, "a", values=(0.1, 0.5, 0.7))
    text = write_report([run], tmp_path, "t", "c", target=0.6).read_text(encoding="utf-8")
    assert "Time to 60 %" in text
    assert "Time to 50 %" not in text


def test_the_name_of_a_metric_cannot_leave_the_folder(tmp_path):
    write_report([saved(tmp_path, "a", evaluate={"metrics": ["../../x"]})], tmp_path, "t", "c")
    assert "______x_over_time" in plots(tmp_path)


def test_private_runs_are_drawn_over_what_they_spent(tmp_path):
    spent = {"epsilon": [0.0, 1.5], "epsilon_replace_one": [0.0, 4.0]}
    write_report([saved(tmp_path, "private", columns=spent), saved(tmp_path, "c")], tmp_path, "t", "c")
    assert plots(tmp_path) == sorted([*PLOTS, "accuracy_over_epsilon"])
