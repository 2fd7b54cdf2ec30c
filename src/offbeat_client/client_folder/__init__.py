"""The client's folder: its identity, the downloaded model, the update on its way, its memory."""
