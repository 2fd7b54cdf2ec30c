import json
import math
from dataclasses import replace

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.record import Searched, is_sweep, read_record, write_record
from offbeat.sweeps.search_space import Choices, Numbers
from offbeat.sweeps.trials import Trial

SPACE = {"lr": Numbers(0.1, 10.0, log=True), "staleness": Choices(("a", {"name": "hinge"}))}
SEARCHED = Searched(
    "tiny", "loss", "lower", (1, 2), 20, {"fedbuff": SPACE, "fedavg": {"n": Numbers(1, 3, False, True)}}
)
TRIALS = {
    "fedbuff": [
        Trial("fedbuff", 0, {"lr": 1.5, "staleness": {"name": "hinge"}}, 0.25, -0.25),
        Trial("fedbuff", 1, {"lr": 0.1, "staleness": "a"}, 0.5, -0.5),
    ],
    "fedavg": [],
}


def test_what_is_written_is_read(tmp_path):
    assert not is_sweep(tmp_path)
    write_record(SEARCHED, TRIALS, tmp_path)
    assert is_sweep(tmp_path)
    assert read_record(tmp_path) == (SEARCHED, TRIALS)
    assert SEARCHED.runs == (20 + 3) * 2


def test_with_a_target_trials_rank_by_the_time_to_it(tmp_path):
    searched = replace(SEARCHED, target=0.3)
    reached, missed = (replace(trial, score=0.0, seconds=None) for trial in TRIALS["fedbuff"])
    reached = replace(reached, seconds=3.0, score=(1 - 1e-9 * 0.25 / 1.25) / (1 + 3.0))
    missed = replace(missed, score=0.3 - 0.5)
    trials = {"fedbuff": [reached, missed], "fedavg": []}
    write_record(searched, trials, tmp_path)
    assert read_record(tmp_path) == (searched, trials)


def test_a_trial_that_diverged_stays_the_worst(tmp_path):
    trial = Trial("fedavg", 0, {"n": 2}, math.inf, -math.inf)
    write_record(SEARCHED, {"fedbuff": [], "fedavg": [trial]}, tmp_path)
    _, trials = read_record(tmp_path)
    assert math.isnan(trials["fedavg"][0].value)
    assert trials["fedavg"][0].score == -math.inf


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("seeds"),
        lambda content: content.update(better="best"),
        lambda content: content["values"]["fedbuff"][0]["point"].pop("lr"),
        lambda content: content["spaces"]["fedbuff"]["lr"].update(low=10.0),
        lambda content: content.update(values=[]),
    ],
)
def test_a_broken_one_is_one_line(change, tmp_path):
    path = write_record(SEARCHED, TRIALS, tmp_path)
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"sweep.json is broken: carry out the sweep again, which keeps its trials$"):
        read_record(tmp_path)
