"""HTTP requests: proxies, TLS, and refusals."""
