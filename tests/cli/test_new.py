"""``offbeat new`` writes experiments that run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat.config import experiment_file, server_file

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_experiment_runs_at_once(folder: Path, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = offbeat("new", "my experiment")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "my experiment: README.md, data.py, experiment.toml, model.py",
        "Next: cd 'my experiment' && offbeat compare experiment.toml",
    ]
    monkeypatch.chdir(folder / "my experiment")
    code, out, err = offbeat("compare", "experiment.toml", "--set", "stop.virtual_seconds=40", "--set", "seeds=[1]")
    assert (code, err) == (0, "")
    assert "data.py:load, model.py:Net, 50 clients" in out
    assert Path("runs/experiment/report.html").exists()


@pytest.mark.parametrize("template", ["quickstart", "all-algorithms", "compression", "private"])
def test_the_experiments_of_a_checkout_are_templates(template: str, offbeat: Command) -> None:
    code, out, _ = offbeat("new", "there", "--template", template)
    assert (code, out) == (0, f"there: {template}.toml\nNext: cd there && offbeat compare {template}.toml\n")
    assert experiment_file.load(Path(f"there/{template}.toml")).name == template


def test_the_experiments_of_the_pages_on_algorithms_come_with_their_files(offbeat: Command) -> None:
    assert offbeat("new", "there", "--template", "algorithms")[0] == 0
    loaded = [experiment_file.load(path).name for path in Path("there").glob("*.toml")]
    assert {"fedbuff", "fedavg", "mifa"} <= set(loaded)
    assert Path("there/half_is_slow.csv").read_text().startswith("step_seconds")


def test_the_notebook(offbeat: Command) -> None:
    assert offbeat("new", "there", "--template", "notebook") == (0, "there: first_steps.ipynb\n", "")
    assert "offbeat.simulate" in Path("there/first_steps.ipynb").read_text(encoding="utf-8")


def test_a_federation_comes_with_the_files_in_its_folders(offbeat: Command) -> None:
    code, out, _ = offbeat("new", "there", "--template", "service")
    names, following = out.splitlines()
    files = sorted(str(path.relative_to("there")) for path in Path("there").rglob("*") if path.is_file())
    assert (code, names) == (0, f"there: {', '.join(files)}")
    assert {"README.md", "client.py", "compose.yaml", "server.toml", "systemd/offbeat.service"} <= set(files)
    assert not any("__pycache__" in name for name in files)
    assert following == "Next: cd there && offbeat server start server.toml"
    assert server_file.load(Path("there/server.toml")).service.clients >= 3


def test_an_empty_folder_is_used(offbeat: Command) -> None:
    Path("empty").mkdir()
    assert offbeat("new", "empty")[0] == 0


@pytest.mark.parametrize("name", ["full", "full/notes.txt"])
def test_what_exists_is_kept(name: str, offbeat: Command) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert offbeat("new", name) == (2, "", f"offbeat: {name} is not an empty folder: choose another name\n")
    assert [(path.name, path.read_text()) for path in Path("full").iterdir()] == [("notes.txt", "mine")]


def test_an_unknown_template_is_one_line(offbeat: Command) -> None:
    code, _, err = offbeat("new", "there", "--template", "quikstart")
    assert code == 2
    assert err.startswith("offbeat: --template quikstart: did you mean 'quickstart'? Allowed: algorithms, ")
    assert err.count("\n") == 1
    assert not Path("there").exists()
