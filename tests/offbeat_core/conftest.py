from tests.offbeat_client.conftest import connection, fault, model, model_file, quick, server, tls_server, visit

__all__ = ["connection", "fault", "model", "model_file", "quick", "server", "tls_server", "visit"]
