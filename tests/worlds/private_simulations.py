"""Settings and functions that tests of private simulations share."""

CLIENTS = 20
FEDBUFF = "algorithms={ mine = { algorithm = 'fedbuff', buffer_size = 4, concurrency = 6 } }"
MASKED = "{ helper = 'here', clip_norm = 0.5, min_clients = 2, bits = 20 }"


def finished(simulation):
    return list(simulation.run())
