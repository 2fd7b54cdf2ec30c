import math
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config import experiment_file
from offbeat.config.server_file import load

SERVER = """
[service]
folder = "run"
clients = 4

[data]
name = "digits"

[model]
name = "softmax"

[local]
steps = 1
batch_size = 8
lr = 0.1

[evaluate]
every_versions = 10
metrics = ["accuracy"]

[algorithm]
algorithm = "fedbuff"
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("every_versions = 10", "every_seconds = 10.0", "evaluate.every_seconds is for simulations"),
        ('[data]\nname = "digits"\n', "", "evaluate needs a test set"),
        ('"digits"', '"mnist"\nfallback = "digits"', "data.fallback is for simulations: leave it out"),
        ('"digits"', '"digits"\naugmentation = "crop-and-flip"', "data.augmentation is for simulations: leave"),
        (
            'metrics = ["accuracy"]',
            "on_clients = 4\n[privacy]\nclip_norm = 1.0",
            r"evaluate.on_clients does not go with \[privacy\]",
        ),
        ('["accuracy"]', '["accuracy", "training_loss"]', "training_loss is for simulations"),
        ("clients = 4", "clients = 4\ncertificate = 'x.pem'", "service: set both certificate and key, or neither"),
        ("clients = 4", "clients = 4\nkeep_best = 'f1'", "service.keep_best = 'f1': must be one of accuracy, loss"),
        (
            "[data]",
            "tls = false\n[login]\nissuer = 'https://id.example'\nclient_id = 'a'\nroles = { admin = ['a'] }\n[data]",
            "login.url is missing: with tls = false",
        ),
        ("[algorithm]", "[algorithm]\nlocal = { lr = 0.5 }", "algorithm.local: put it into \\[local\\]"),
        ('algorithm = "fedbuff"', "", "algorithm.algorithm is missing: name one"),
        ('"fedbuff"', '"fedbuf"', "algorithm: unknown algorithm 'fedbuf'"),
    ],
)
def test_what_a_server_cannot_do_is_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert before in SERVER
    path = tmp_path / "server.toml"
    path.write_text(SERVER.replace(before, after), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message):
        load(path)


def test_the_service_gets_every_setting_of_the_file(tmp_path: Path) -> None:
    keys = {
        "host": '"localhost"', "port": "1", "seed": "2", "connections_per_address": "3", "token_seconds": "4.5",
        "checkpoint_seconds": "5.5", "max_update_norm": "6.5", "max_examples": "7", "max_share": "0.75",
        "requests_a_second": "8.5",
    }  # fmt: skip
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    path = tmp_path / "server.toml"
    more = "[server]\nlease_seconds = 9.5\n[stop]\nversions = 11\n"
    path.write_text(SERVER.replace("clients = 4\n", f"clients = 4\n{lines}") + more, encoding="utf-8")
    settings = load(path).settings()
    assert settings.folder == tmp_path / "run"
    assert {key: getattr(settings.service, key) for key in keys} == {
        key: value.strip('"') if key == "host" else float(value) for key, value in keys.items()
    }
    assert (settings.lease_seconds, settings.stop_versions, settings.evaluate_every) == (9.5, 11, 10)


def test_a_webhook_may_change_when_the_server_restarts(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(SERVER, encoding="utf-8")
    without = load(path)
    (tmp_path / "secret").write_bytes(b"0123456789abcdef")
    path.write_text(f'{SERVER}[webhook]\nurl = "https://hooks.example/"\nsecret_file = "secret"\n', encoding="utf-8")
    webhook = load(path).settings().webhook
    assert webhook is not None
    assert webhook.secret == b"0123456789abcdef"  # relative to the file
    assert load(path).resolved() == without.resolved()


def test_logins_may_change_when_the_server_restarts(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(SERVER, encoding="utf-8")
    without = load(path)
    table = "issuer = 'https://id.example'\nclient_id = 'offbeat'\nroles = { admin = ['fl-admins'], viewer = ['*'] }\n"
    path.write_text(f"{SERVER}[login]\n{table}", encoding="utf-8")
    login = load(path).settings().login
    assert login is not None
    assert login.roles == {"admin": {"fl-admins"}, "viewer": {"*"}}
    assert load(path).resolved() == without.resolved()


def test_the_best_versions_metric_may_change_between_starts(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(SERVER, encoding="utf-8")
    before = load(path)
    assert before.settings().best_metric is None
    path.write_text(SERVER.replace("clients = 4", 'clients = 4\nkeep_best = "loss"'), encoding="utf-8")
    assert load(path).settings().best_metric == ("loss", True)
    assert load(path).resolved() == before.resolved()


def test_a_random_pattern_draws_by_the_services_seed(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    algorithm = '"async_comm_sgd"\npattern = { name = "random", p = 0.3 }'
    text = SERVER.replace("clients = 4\n", "clients = 4\nseed = 5\n").replace('"fedbuff"', algorithm)
    path.write_text(text, encoding="utf-8")
    assert load(path).build_algorithm().pattern.parameters["seed"] == 5


def test_clients_need_neither_a_test_set_nor_a_holdout_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    changed = SERVER.replace('[data]\nname = "digits"\n', "").replace(
        "every_versions = 10", "every_versions = 10\non_clients = 4"
    )
    path.write_text(changed.replace('["accuracy"]', '["my.py:error", "mae"]\nbetter = "lower"'), encoding="utf-8")
    settings = load(path).settings()
    assert (settings.evaluate_every, settings.evaluate_on_clients) == (10, 4)
    assert settings.lower_is_better == {"loss", "training_loss", "mae", "mse", "perplexity", "error"}
    path.write_text(SERVER, encoding="utf-8")
    assert load(path).settings().client_evaluation is None


def test_a_metric_may_end_a_servers_run(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    for stop, versions in (("target = 0.9", math.inf), ("versions = 7\npatience = 3", 7)):
        path.write_text(f"{SERVER}\n[stop]\n{stop}\n", encoding="utf-8")
        settings = load(path).settings()
        assert settings.stop_versions == versions
        assert settings.early_stop is not None
    path.write_text(f"{SERVER}\n[stop]\nversions = 7\n", encoding="utf-8")
    assert load(path).settings().early_stop is None
    assert load(path).resolved()["stop"] == {"versions": 7}
    for stop, line in (
        ("target = 9.0", "stop.target = 9: an accuracy is between 0 and 1"),
        ("target = 0.9\nmetric = 'client_f1'", "clients measure nothing: set evaluate.on_clients"),
        ("metric = 'loss'", "metric is for target and patience"),
        ("", "stop: set versions, target or patience"),
    ):
        path.write_text(f"{SERVER}\n[stop]\n{stop}\n", encoding="utf-8")
        with pytest.raises(OffbeatError, match=line):
            load(path)


def test_the_other_kind_of_file_is_one_line_that_names_its_command(tmp_path):
    (server := tmp_path / "server.toml").write_text(SERVER)
    (experiment := tmp_path / "experiment.toml").write_text(
        '[algorithms.fedavg]\ncohort = 2\n[data]\nname = "digits"\n'
    )
    with pytest.raises(
        OffbeatError, match=r"^\S+experiment.toml is an experiment's file: offbeat run \S+; a server's "
    ):
        load(experiment)
    with pytest.raises(
        OffbeatError, match=r"^\S+server.toml is a server's file: offbeat server start \S+; an experiment's "
    ):
        experiment_file.load(server)
