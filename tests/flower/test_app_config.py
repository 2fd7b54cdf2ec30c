import pytest
from offbeat_core.errors import OffbeatError

from offbeat.flower.app_config import read_config, read_run_config

TOML = '[tool.flwr.app.config]\nlocal-epochs = 1\nname = "a"\n\n[tool.flwr.app.config.optimizer]\nlr = 0.5\n'


def test_settings_are_those_of_the_file_with_changes(tmp_path):
    assert read_run_config(tmp_path, None) == {}
    assert read_run_config(tmp_path, "any=1") == {"any": 1}
    (tmp_path / "pyproject.toml").write_text(TOML)
    assert read_run_config(tmp_path, None) == {"local-epochs": 1, "name": "a", "optimizer.lr": 0.5}
    changed = read_run_config(tmp_path, "local-epochs=3 name='b c'")
    assert changed == {"local-epochs": 3, "name": "b c", "optimizer.lr": 0.5}
    with pytest.raises(OffbeatError, match=r"--run-config epochs: .* has no such setting: .*local-epochs"):
        read_run_config(tmp_path, "epochs=3")


def test_a_file_without_settings_allows_any(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert read_run_config(tmp_path, "epochs=3") == {"epochs": 3}
    (tmp_path / "pyproject.toml").write_text("[[")
    with pytest.raises(OffbeatError, match=r"pyproject.toml cannot be read"):
        read_run_config(tmp_path, None)


def test_a_node_config_is_read():
    assert read_config(None) == {}
    assert read_config("partition-id=3 num-partitions=10") == {"partition-id": 3, "num-partitions": 10}
    with pytest.raises(OffbeatError, match=r"settings .* cannot be read"):
        read_config("missing.toml")


@pytest.mark.parametrize(
    ("text", "rest"),
    [("local-epochs = 2", "local-epochs = 2"), ("num-partitions:10", "num-partitions:10"), ("a=1 b= 2 c='d'", "b= 2")],
)
def test_words_that_are_not_settings_are_refused(text, rest):
    with pytest.raises(OffbeatError, match=f"cannot be read: '{rest}' is not NAME=VALUE: write them as 'a=1 "):
        read_config(text)
