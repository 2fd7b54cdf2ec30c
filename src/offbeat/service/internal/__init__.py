"""The connection between fronts, which serve clients, and the leader."""
