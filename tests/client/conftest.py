from tests.offbeat_client.conftest import connection, fault, model, quick, server, visit

__all__ = ["connection", "fault", "model", "quick", "server", "visit"]
