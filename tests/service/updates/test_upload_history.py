from offbeat.service.updates.upload_history import load_history


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
