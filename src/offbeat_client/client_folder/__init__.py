"""The client's folder.

It holds the client's identity, the downloaded model, the update on its way, and the client's memory.
"""
