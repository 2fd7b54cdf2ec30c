"""A provider that answers whatever a test wants, also what no honest one would."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import Key, RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER_KEY = RSAKey.generate_key(2048, {"kid": "one"})


class FalseProvider:
    """Answers by path, JSON or bytes; ``asked`` counts requests."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.asked = Counter[str]()
        self.pause = 0.0  # seconds before each byte of an answer
        self.headers: dict[str, str] = {}
        self.status = 200
        self.reset()

    def reset(self) -> None:
        """Answer as an honest provider."""
        self.pause, self.headers, self.status = 0.0, {}, 200
        self.asked.clear()
        self.token: Callable[[str], str] = lambda nonce: sign(self.claims(nonce))
        self.answers: dict[str, Any] = {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize?tenant=7",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            },
            "/keys": {"keys": [KEY.as_dict(private=False)]},
        }

    def claims(self, nonce: str, /, **changes: Any) -> dict[str, Any]:
        """Return the claims of an honest ID token; those that are changed to None are left out."""
        now = int(time.time())
        honest = {"iss": self.issuer, "aud": "offbeat", "sub": "ada", "exp": now + 300, "iat": now, "nonce": nonce}
        return {name: value for name, value in (honest | {"groups": ["fl-ops"]} | changes).items() if value is not None}

    def will_answer(self, nonce: str) -> None:
        """Let the next code give a token for this nonce."""
        self.answers["/token"] = {"id_token": self.token(nonce), "access_token": "a", "token_type": "Bearer"}


def sign(claims: dict[str, Any], key: Key = KEY, **header: Any) -> str:
    header = {"alg": "RS256", "kid": "one"} | header
    return jwt.encode(header, claims, key, algorithms=[header["alg"]])


@contextmanager
def false_provider() -> Generator[FalseProvider]:
    """Run a false provider in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            provider.asked[self.path] += 1
            found = provider.answers.get(self.path)
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(404 if found is None else provider.status)
            for name, value in ({"Content-Length": str(len(content))} | provider.headers).items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for place in range(0, len(content), 1 if provider.pause else 2**16):
                    time.sleep(provider.pause)
                    self.wfile.write(content[place : place + 1] if provider.pause else content[place : place + 2**16])
            except OSError:
                pass  # the server has heard enough

        do_GET = answer  # noqa: N815

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = FalseProvider(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield provider
        server.shutdown()
        thread.join()
