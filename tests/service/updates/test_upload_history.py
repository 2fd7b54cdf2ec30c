from offbeat.service.updates.upload_history import Digests, load_history


def test_a_history_comes_back_from_its_state():
    history = load_history(3)
    assert history.state_dict() == {"digests": [], "norms": [], "usual_norm": 0.0, "client_keys": []}
    history.digests.add(1, 4, "a", counted=True)
    history.digests.add(1, 5, "b", counted=False)
    for client, norm in ((0, 1.0), (1, 3.0), (2, 2.0)):
        history.norms.add(client, norm)
    history.keys.add(2, bytes([7]))
    state = history.state_dict()
    assert state == {
        "digests": [(1, 4, "a"), (1, 5, "b")],
        "norms": [(0, 1.0), (1, 3.0), (2, 2.0)],
        "usual_norm": 2.0,
        "client_keys": [(2, "07")],
    }
    again = load_history(3, state)
    assert again.state_dict() == state
    assert again.norms.limit == 200.0
    earlier = {key: value for key, value in state.items() if key != "client_keys"}
    assert load_history(3, earlier).keys.entries() == []


def test_the_last_upload_and_the_last_counted_one_are_known():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    digests.add(3, 1, "b", counted=True)
    digests.add(3, 2, "c", counted=False)
    digests.add(3, 3, "d", counted=False)
    digests.add(5, 0, "e", counted=False)
    for known in (digests, Digests(digests.entries())):
        assert [known.get(3, visit) for visit in range(4)] == [None, "b", None, "d"]
        assert known.get(5, 0) == "e"
        assert known.get(4, 0) is None


def test_a_counted_upload_is_the_last_counted_one_after_a_restart_too():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    again = Digests(digests.entries())
    again.add(3, 1, "b", counted=False)
    assert (again.get(3, 0), again.get(3, 1)) == ("a", "b")
