"""The numbers of a report, computed again from the runs' folders, after docs/concepts/reports.md alone."""

import csv
import json
import re
from itertools import pairwise, permutations

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from scipy import stats

from offbeat.cli.main import app

SEEDS = (1, 2, 3, 4)
LABELS = ("fedavg", "fedbuff", "slow", "stuck")
CHANGES = (
    "seeds=[1, 2, 3, 4]",
    "population.holdout=0.2",
    "stop.virtual_seconds=80.0",
    "evaluate={ every_seconds = 5.0, on_clients = 8 }",
    "algorithms.fedavg.cohort=8",
    "algorithms.slow={ algorithm = 'fedbuff', buffer_size = 3, concurrency = 4, server_lr = 0.2 }",
    "algorithms.stuck={ algorithm = 'fedbuff', buffer_size = 10000, concurrency = 4 }",
)
SHORT = 1e-4  # the relative error of the numbers that a page's charts hold


@pytest.fixture(scope="module", autouse=True)
def blank_pictures():
    """Draw no pictures: they take half of the time of a report, and no number of theirs is read here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b"\x89PNG"))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_toml):
    folder = tmp_path_factory.mktemp("numbers")
    file = folder / "tiny.toml"
    file.write_text(tiny_toml, encoding="utf-8")
    options = [*(("--set", change) for change in CHANGES), *(("--algorithm", label) for label in LABELS)]
    offbeat("run", str(file), "--output", str(folder / "runs"), *(word for option in options for word in option))
    return folder / "runs"


@pytest.fixture(scope="module")
def tables(folder):
    return {
        (label, seed): {
            "client_time": json.loads((folder / f"{label}-seed{seed}" / "client_time.json").read_text()),
            **{
                name: {
                    key: np.array(column) for key, column in read(folder / f"{label}-seed{seed}" / f"{name}.parquet")
                }
                for name in ("history", "events", "clients")
            },
        }
        for label in LABELS
        for seed in SEEDS
    }


@pytest.fixture(scope="module")
def targets(tables):
    """Values that all four, three, two and one of the seeds of ``slow`` reach, and one that none does."""
    best = sorted(tables["slow", seed]["history"]["accuracy"].max() for seed in SEEDS)
    return [best[0] / 2, *(sum(ends) / 2 for ends in pairwise([*best, 1.0]))]


def offbeat(*words):
    app(list(words), prog_name="offbeat", standalone_mode=False)


def read(path):
    return pq.read_table(path).to_pydict().items()


def report(folder, target, output):
    offbeat("report", str(folder), "--csv", "--target", repr(float(target)), "--output", str(output))
    with (output / "summary.csv").open(encoding="utf-8", newline="") as file:
        lines = {(line["label"], line["measure"]): line for line in csv.DictReader(file)}
    return lines, (output / "report.html").read_text(encoding="utf-8")


def interval(values, *, share=False, amount=False):
    """Return mean, sample standard deviation, and the ends of Student's interval; of an amount, by its logarithm."""
    values = np.asarray(values, float)
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values)) if np.ptp(values) else (
        values.mean(), values.mean())  # fmt: skip
    if amount and high > 1.5 * values.mean():
        factor = np.exp(high / values.mean() - 1)
        low, high = values.mean() / factor, values.mean() * factor
    return values.mean(), values.std(ddof=1), *((max(low, 0), min(high, 1)) if share else (low, high))


def counted(tables, label, seed, column):
    events = tables[label, seed]["events"]
    return events[column][events["outcome"] == "counted"].astype(float)


def to_target(tables, label, target, *columns):
    """Return for each seed the cost up to the first evaluation that reached the target; infinity without one."""
    costs = []
    for seed in SEEDS:
        history = tables[label, seed]["history"]
        reached = np.flatnonzero(history["accuracy"] >= target)
        costs.append(sum(history[name][reached[0]] for name in columns) if len(reached) else np.inf)
    return np.array(costs, float)


def log_rounding(tables, label, target):
    """Return the deviation of the log of a time since the model before that which reached the target."""
    found = []
    for seed in SEEDS:
        history = tables[label, seed]["history"]
        hit = np.flatnonzero(history["accuracy"] >= target)[0]
        before = history["seconds"][np.flatnonzero(history["version"] == history["version"][hit - 1])[0]]
        found.append(np.log(np.linspace(before, history["seconds"][hit], 100_001)[1:]).std())
    return np.array(found)


def expected(tables, label, target):
    """Return the line of each measure of ``summary.csv``: mean, deviation, ends; None where it is empty."""
    histories = [tables[label, seed]["history"] for seed in SEEDS]
    last = {name: [history[name][-1] for history in histories] for name in histories[0]}
    lines = {
        "final_accuracy": interval(last["accuracy"], share=True),
        "final_loss": interval(last["loss"], amount=True),
        "best_accuracy": interval([history["accuracy"].max() for history in histories], share=True),
        "mean_of_last_10_accuracy": interval([history["accuracy"][-10:].mean() for history in histories], share=True),
        **{f"final_{name}": interval(last[name], share=True) for name in last if name.startswith("client_accuracy")},
        **{name: interval(last[name], amount=True) for name in ("counted", "unused", "lost", "bytes_down", "bytes_up")},
    }
    lines["versions"] = interval(last["version"], amount=True)
    stale = [values for seed in SEEDS if len(values := counted(tables, label, seed, "staleness"))]
    lines["mean_staleness"] = interval([values.mean() for values in stale], amount=True)
    lines["max_staleness"] = (max(values.max() for values in stale), None, None, None)
    times = [tables[label, seed]["client_time"] for seed in SEEDS]
    waiting, working = (np.array([time[f"{what}_seconds"] for time in times]) for what in ("waiting", "working"))
    lines["waiting_share"] = interval(waiting / (waiting + working), share=True)
    have = [len(set(counted(tables, label, seed, "client"))) for seed in SEEDS]
    lines["clients_never_counted"] = interval([20 - number for number in have], amount=True)
    if all(last["counted"]):
        lines["displacement_per_update"] = interval(np.divide(last["displacement"], last["counted"]), amount=True)
    costs = {"seconds": ("seconds",), "updates": ("counted", "unused", "lost"), "bytes": ("bytes_down", "bytes_up")}
    for name, columns in costs.items():
        cost = to_target(tables, label, target, *columns)
        if np.isfinite(cost).all():
            lines[f"{name}_to_target"] = interval(cost, amount=True)
    time, baseline = (to_target(tables, each, target, "seconds") for each in (label, "fedavg"))
    lines["reached_target"] = (np.isfinite(time).sum(), None, None, None)
    if np.isfinite(np.median(time)):
        lines["median_seconds_to_target"] = (np.median(time), None, None, None)
    if np.isfinite(time).all() and np.isfinite(baseline).all():
        mean, _, low, high = np.exp(interval(np.log(baseline / time)))
        lines["speed_up"] = (mean, None, low, high)
    theirs = [tables["fedavg", seed]["history"]["accuracy"][-1] for seed in SEEDS]
    mean, _, low, high = interval(np.subtract(last["accuracy"], theirs))
    lines["difference_of_final_accuracy"] = (mean, None, low, high)
    return lines


@pytest.mark.parametrize("place", range(5), ids=["all", "three", "two", "one", "none"])
def test_the_summary_and_the_finding(place, folder, tables, targets, tmp_path):
    target = targets[place]
    lines, page = report(folder, target, tmp_path)
    sure = {label: expected(tables, label, target) for label in LABELS}
    assert {key for key in lines if key[1] != "real_seconds"} == {
        (label, name) for label, own in sure.items() for name in own
    }
    for label, own in sure.items():
        for name, line in own.items():
            found = [lines[label, name][column] for column in ("mean", "sd", "ci_low", "ci_high")]
            assert [text != "" for text in found] == [value is not None for value in line], (label, name)
            known = [value for value in line if value is not None]
            assert [float(text) for text in found if text] == pytest.approx(known, rel=1e-9, abs=1e-12), (label, name)
            assert lines[label, name]["seeds"] == "4"

    (finding,) = re.findall(r'class="finding">(.*?)</p>', page)
    finding = re.sub(r"</?span>", "", finding)
    times = {label: to_target(tables, label, target, "seconds") for label in LABELS}
    reached = {label: int(np.isfinite(own).sum()) for label, own in times.items()}
    if not any(reached.values()):
        assert finding.startswith("No run reached ")
        return
    for label, number in reached.items():
        assert (f"{label} in {4 - number} of 4 seeds" in finding) == (number < 4)
    # Bonferroni's correction for the pairs of three algorithms, with bounds where a seed missed the target.
    decided, *rest = re.split(r"Between |% was missed", finding)
    pairs = len(LABELS) * (len(LABELS) - 1) // 2
    for label, other in permutations(LABELS, 2):
        if reached[label] == 4 and reached[other] == 4:
            logs = np.log(times[other] / times[label])
            rounded = np.mean(log_rounding(tables, label, target) ** 2 + log_rounding(tables, other, target) ** 2)
            error = max(stats.sem(logs), np.sqrt(rounded / 4))
            is_clear = logs.mean() > stats.t.ppf(1 - 0.025 / pairs, 3) * error
            best = min(LABELS, key=lambda one: np.log(times[one]).mean())
            if label == best:
                behind = decided.partition(" faster than ")[2].partition(":")[0]
                assert (f" {other} " in f" {behind.replace(',', '')} ") == is_clear, (other, finding)
                assert rest or is_clear


def test_some_target_has_speed_ups_and_some_a_median(tables, targets):
    assert "speed_up" in expected(tables, "slow", targets[0])
    assert [expected(tables, "slow", target)["reached_target"][0] for target in targets] == [4, 3, 2, 1, 0]
    assert "median_seconds_to_target" in expected(tables, "slow", targets[1])
    assert expected(tables, "stuck", targets[0])["reached_target"][0] == 0


def test_the_charts(folder, tables, targets, tmp_path):
    _, page = report(folder, targets[0], tmp_path)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))
    names = [label["name"] for label in data["labels"]]

    for curve in data["clients"]["curves"]:
        last = [tables[names[curve["label"]], seed]["clients"] for seed in SEEDS]
        values = np.concatenate([each["accuracy"][each["seconds"] == each["seconds"].max()] for each in last])
        assert curve["y"] == pytest.approx(100 * np.sort(values), rel=SHORT)
        assert curve["note"] == f"median {100 * np.median(values):.1f} %"

    for curve in data["participation"]["curves"]:
        clients = [counted(tables, names[curve["label"]], seed, "client").astype(int) for seed in SEEDS]
        ranked = np.mean([np.sort(np.bincount(each, minlength=20))[::-1] for each in clients], axis=0)
        ranks = [round(20 * x / 100) - 1 for x in curve["x"]]  # clients without a counted update are drawn as one line
        assert curve["y"] == pytest.approx(ranked[ranks], rel=SHORT)
        assert set(np.flatnonzero(ranked)) <= set(ranks)
        half = 1 + np.argmax(np.cumsum(ranked) >= ranked.sum() / 2)
        without = np.mean(ranked == 0)
        idle = f"; {100 * without:.3g} % have none" if without else ""
        assert curve["note"] == f"{100 * half / 20:.0f} % of the clients{idle}"

    histograms = re.findall(r"<figcaption>.*?<b[^>]*>(.*?)</b>.*?note\">(.*?)<(.*?)</figure>", page, re.DOTALL)
    assert {label for label, _, _ in histograms} == set(LABELS)
    for label, note, bars in histograms:
        seeds = [counted(tables, label, seed, "staleness") for seed in SEEDS]
        assert f"mean {np.mean([each.mean() for each in seeds]):.1f}," in note
        found = re.findall(r"staleness (\d+): ([\d.]+) %", bars)
        assert found
        for value, share in found:
            mean = 100 * np.mean([(each == int(value)).mean() for each in seeds])
            assert float(share) == pytest.approx(mean, abs=0.051)

    (by_label,) = re.findall(r'<table id="by-label".*?</table>', page, re.DOTALL)
    for row in re.findall(r'<th scope="row">(.*?)</tr>', by_label, re.DOTALL):
        label = re.sub(r"<svg.*?</svg>", "", row, flags=re.DOTALL).partition("<")[0]
        files = [json.loads((folder / f"{label}-seed{seed}" / "labels.json").read_bytes()) for seed in SEEDS]
        means = [np.mean([file[str(digit)] for file in files]) for digit in range(10)]
        assert [float(value) for value in re.findall(r'data-value="(.*?)"', row)] == pytest.approx(means)


def test_the_mean_curves(folder, tables, targets, tmp_path):
    _, page = report(folder, targets[0], tmp_path)
    curves = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))["curves"]
    costs = {"seconds": ("seconds",), "updates": ("counted", "unused", "lost"), "bytes": ("bytes_down", "bytes_up"),
             "versions": ("version",)}  # fmt: skip
    units = {"(minutes)": 60, "(seconds)": 1, "(kB)": 1e3, "(MB)": 1e6}
    titles = {axis["key"]: axis["title"] for axis in curves["axes"]}
    assert {curve["axis"] for curve in curves["means"]} == set(costs)
    for curve in curves["means"]:
        label, unit = LABELS[curve["label"]], units.get(titles[curve["axis"]].rpartition(" ")[2], 1)
        lines = []
        for seed in SEEDS:
            history = tables[label, seed]["history"]
            cost = sum(history[name] for name in costs[curve["axis"]]) / unit
            lines.append((cost.astype(float), 100 * history["accuracy"]))
        xs = np.unique(np.concatenate([cost for cost, _ in lines]))
        xs = xs[xs <= min(cost[-1] for cost, _ in lines)]
        xs = xs[xs >= max(cost[0] for cost, _ in lines)]
        assert curve["x"] == pytest.approx(xs, rel=SHORT)
        values = np.array([np.interp(xs, *line) for line in lines])
        assert curve["y"]["accuracy"] == pytest.approx(values.mean(axis=0), rel=SHORT)
        half = stats.t.ppf(0.975, 3) * values.std(axis=0, ddof=1) / 2
        low, high = np.clip(values.mean(axis=0) - half, 0, 100), np.clip(values.mean(axis=0) + half, 0, 100)
        assert curve["low"]["accuracy"] == pytest.approx(low, rel=SHORT, abs=1e-6)
        assert curve["high"]["accuracy"] == pytest.approx(high, rel=SHORT)
