from offbeat_client.http.retry import jitter


def test_jitter_covers_the_range():
    times = [jitter(10.0) for _ in range(200)]
    assert 0 <= min(times) < 2
    assert 8 < max(times) <= 10
