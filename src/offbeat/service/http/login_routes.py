"""The routes by which people log in and out, for browsers."""

import html
import logging
from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import RedirectResponse, Response
from offbeat_core.serving.console_log import event
from offbeat_core.tokens import token_hash

from offbeat.service.accounts import sessions
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.http.live_routes import HEADERS
from offbeat.service.http.request_parts import bearer_token
from offbeat.service.http.session_cookie import cookie, set_cookie
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.login import login_attempts
from offbeat.service.login.login import CALLBACK, CallbackQuery, Login
from offbeat.service.login.login_errors import LoginRefusedError, ProviderError
from offbeat.service.login.login_settings import LoginSettings

LOGIN = "/v1/login"

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Offbeat</title>
<link rel="stylesheet" href="{url}/live/live.css">
</head>
<body>
<main class="sign-in">
<h1>Offbeat</h1>
<p class="problem">{line}</p>
<p><a href="{url}/">Back to the page</a></p>
</main>
</body>
</html>
"""
_PROVIDER_LINE = "The provider of logins does not answer as it should: try again later, or ask the server’s operator."

Text = Annotated[str | None, Query(max_length=4096)]


def add_login_routes(
    app: FastAPI,
    settings: LoginSettings,
    url: str,
    accounts: Accounts,
    log_writer: LogWriter,
    count_refusal: Callable[[str], None],
) -> None:
    """Add these routes to an application; ``url`` is where people open the live page.

    ``accounts`` has the sessions; ``count_refusal`` counts the logins that fail.
    """
    login, session_name = Login(settings, url), settings.cookie
    attempt_name = f"{session_name}-login"

    def problem(error: Exception) -> Response:
        """Return the page for a login that fails, and count and log the failure."""
        count_refusal("login-failed")
        if isinstance(error, LoginRefusedError):
            line, status = f"{str(error)[:1].upper()}{str(error)[1:]}.", error.status
        else:
            line, status = _PROVIDER_LINE, 502
            event("login_failed", logging.WARNING, problem=str(error))
        page = _PAGE.format(url=html.escape(url), line=html.escape(line))
        headers = {**HEADERS, "Cache-Control": "no-store"}
        return Response(page, status, headers, media_type="text/html; charset=utf-8")

    @app.get(LOGIN, include_in_schema=False)
    async def begin() -> Response:
        """Send a person to the provider."""
        try:
            address, attempt = await login.begin()
        except ProviderError as error:
            return problem(error)
        return _redirect(address, set_cookie(attempt_name, attempt.cookie, login_attempts.SECONDS))

    @app.get(CALLBACK, include_in_schema=False)
    async def callback(
        request: Request, code: Text = None, state: Text = None, error: Text = None, iss: Text = None
    ) -> Response:
        """Log a person in who comes back from the provider."""
        try:
            query = CallbackQuery(code, state, error, iss)
            person = await login.complete(cookie(request.scope, attempt_name), query)
        except (LoginRefusedError, ProviderError) as failure:
            return problem(failure)
        log_writer.check()
        token = accounts.sessions.begin(person.subject, person.role)
        await log_writer.wait_until_durable()
        session = set_cookie(session_name, token, int(sessions.SECONDS))
        return _redirect(f"{url}/", session, set_cookie(attempt_name, "", 0))

    @app.post("/v1/logout", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        """End the session of the request, if it has one."""
        token = bearer_token(request.scope)
        assert token is not None, "no POST comes here without a valid token"
        accounts.sessions.end(token_hash(token))
        await log_writer.wait_until_durable()
        return Response(status_code=204, headers={"Set-Cookie": set_cookie(session_name, "", 0)})


def _redirect(url: str, *cookies: str) -> Response:
    response = RedirectResponse(url, 303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    for one in cookies:
        response.headers.append("Set-Cookie", one)
    return response
