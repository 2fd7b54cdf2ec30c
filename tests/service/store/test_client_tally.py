"""Counts of visits from rows of the log, beside a plain account of each visit."""

import json
import random

from offbeat.service.store.client_tally import ClientTally

NAMES = ("visits", "counted", "refused", "lost", "staleness_sum", "state", "last_seen")
CLIENTS = 5


def history(seed, length):
    """Return calls, and for each client its visits: what became of each, and the staleness of those that counted."""
    numbers, calls = random.Random(seed), []
    visits = {client: [] for client in range(CLIENTS)}
    while len(calls) < length:
        client = numbers.randrange(CLIENTS)
        last = visits[client][-1][0] if visits[client] else "none"
        is_open = last in ("working", "late")
        match numbers.choice(["assign", "receive", "offer", "drop", "lapse", "renew", "finish"]):
            case "assign":
                if is_open:
                    visits[client][-1] = ("lost", None)
                visits[client].append(("working", None))
                calls.append(("assign", {"clients": [client]}))
            case "receive" if is_open:
                counts, staleness = numbers.random() < 0.7, numbers.randrange(9)
                visits[client][-1] = ("counted", staleness) if counts else ("refused", None)
                calls.append(("receive", {"client": client, "outcome": [counts, staleness]}))
            case "offer" if is_open:
                visits[client][-1] = ("refused", None)
                calls.append(("offer", {"client": client}))
            case "drop" if last == "working":
                visits[client][-1] = ("late", None)
                calls.append(("drop", {"client": client}))
            case "lapse":
                late = [other for other, all_of in visits.items() if all_of and all_of[-1][0] == "working"]
                for other in late:
                    visits[other][-1] = ("late", None)
                calls.append(("lapse", {"outcome": late}))
            case "finish" if numbers.random() < 0.3:
                for all_of in visits.values():
                    if all_of and all_of[-1][0] in ("working", "late"):
                        all_of[-1] = ("lost", None)
                calls.append(("finish", {}))
            case _:
                pass
    return calls, visits


def check(tally, visits):
    for client, all_of in visits.items():
        ends = [end for end, _ in all_of]
        counted = [staleness for end, staleness in all_of if end == "counted"]
        found = tally[client]
        assert (found.visits, found.counted, found.refused) == (len(ends), len(counted), ends.count("refused"))
        assert found.lost == ends.count("lost") + ends.count("late")
        assert found.mean_staleness == (sum(counted) / len(counted) if counted else None)
        assert (found.state == "working") == (ends[-1:] == ["working"])
    assert tally.working() == [client for client, all_of in visits.items() if all_of and all_of[-1][0] == "working"]
    assert list(tally.counted(CLIENTS)) == [tally[client].counted for client in range(CLIENTS)]
    assert tally.total().visits == sum(map(len, visits.values()))


def test_every_history_is_counted():
    for seed in range(50):
        calls, visits = history(seed, 60)
        tally = ClientTally()
        for call in calls:
            tally.note(*call)
        check(tally, visits)


def test_counts_go_on_wherever_they_were_saved():
    for seed in range(10):
        calls, visits = history(seed, 40)
        tally = ClientTally(clock=lambda: 9.5)
        tally.see(3)
        for call in calls[: 4 * seed]:
            tally.note(*call)
        again = ClientTally(json.loads(json.dumps(tally.state_dict())))
        for call in calls[4 * seed :]:
            again.note(*call)
        check(again, visits)
        assert (again[3].last_seen, again[4].last_seen) == (9.5, None)


def test_counts_are_as_saved_however_often_they_were_saved_before():
    for seed in range(10):
        tally, numbers = ClientTally(clock=lambda: 9.5), random.Random(seed)
        for call in history(seed, 60)[0]:
            tally.note(*call)
            tally.see(numbers.randrange(CLIENTS))
            if numbers.random() < 0.5:
                saved = tally.state_dict()
                text = json.dumps(saved)
        assert json.dumps(saved) == text  # another thread writes them
        assert tally.state_dict() == [
            [client, *(getattr(tally[client], name) for name in NAMES)] for client, *_ in tally.state_dict()
        ]
