"""Commands ``offbeat server …``: of a server that runs, or of its folder."""
