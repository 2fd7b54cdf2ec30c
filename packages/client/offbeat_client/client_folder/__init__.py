"""A client's folder: its identity, model, update on its way, and memory."""
