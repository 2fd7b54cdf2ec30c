import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.page.saved_runs import rendered, saved

VALUES = {"fedbuff": (0.1, 0.6, 0.8, 0.9), "fedavg": (0.1, 0.2, 0.3, 0.4), "slow": (0.1, 0.3, 0.5, 0.7)}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Three algorithms, the third a variant of the first; two seeds; clients have evaluated the first."""
    folder = tmp_path_factory.mktemp("page")
    visits = [(client, client % 3, 10.0 * client, 10.0 * client + 30, "counted") for client in range(12)]
    found = []
    for label, values in VALUES.items():
        for seed in (1, 2):
            higher = [value + 0.02 * seed for value in values]
            run = saved(folder, label, seed, higher, visits, evaluate={"metrics": ["accuracy", "mae"], "target": 0.5})
            table = {"server_lr": 0.5, "algorithm": "fedbuff" if label == "slow" else label}
            run.config["algorithms"][label] = table
            if label == "fedbuff":
                columns = {"seconds": [300.0] * 3, "client": [1, 2, 3], "accuracy": [0.2, 0.5, 0.9]}
                pq.write_table(pa.table(columns), run.path / "clients.parquet")
            found.append(run)
    return found


@pytest.fixture(scope="session")
def report(runs, tmp_path_factory):
    """The page of these runs."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(rendered(runs)[0], encoding="utf-8")
    return path
