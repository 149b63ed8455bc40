"""Requests that are answered: those of the page that this launch has opened, and no others.

Knows hosts, origins, tokens, content types and sizes. Does not know any endpoint. A page of another site can
send requests to this machine, under its own origin or, by a name that resolves to 127.0.0.1, under a host
of its own; neither gets past here, and neither has the token.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .replies import refusal

HOSTS = ("127.0.0.1", "localhost")
TOKEN = "x-stepsim-token"
API = "/api/"

MOST_BYTES = 2**20
"""Bytes of a request. The largest scenario that ships has 4 kB."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Guard:
    """An ASGI application around ``app`` that lets through what the page of this launch asks."""

    app: Any
    token: str

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSocket is served
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        wrong = _wrong(scope, self.token)
        await (refusal(*wrong) if wrong else self.app)(scope, receive, guarded)


def _wrong(scope: Any, token: str) -> tuple[int, str] | None:
    """The status and the reason of a refusal."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    hosts, origins = _values(headers, "host"), _values(headers, "origin")
    if len(hosts) != 1 or not is_here(hosts[0]):
        return 421, "this page answers to 127.0.0.1 and localhost alone"
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return 403, "another site may not ask this page"
    if not scope["path"].startswith(API):
        return None  # the page itself holds no secret: a link on another site may open it
    if any(site not in ("same-origin", "none") for site in _values(headers, "sec-fetch-site")):
        return 403, "another site may not ask this page"
    given = _values(headers, TOKEN)
    if len(given) != 1 or not hmac.compare_digest(given[0].encode(), token.encode()):
        return 401, "the token of this launch is missing: open the address that `stepsim serve` has printed"
    if scope["method"] == "POST":
        return _wrong_body(headers)
    return None


def is_here(host: str) -> bool:
    """Whether a Host header names this machine. Any port: the page may be reached through a tunnel."""
    name, colon, port = host.partition(":")
    return name in HOSTS and (not colon or port.isdecimal())


def _wrong_body(headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    kinds = _values(headers, "content-type")
    if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != "application/json":
        return 415, "a request is JSON (content-type: application/json)"
    lengths = _values(headers, "content-length")
    if any(not length.isdecimal() or int(length) > MOST_BYTES for length in lengths):
        return 413, f"a request has at most {MOST_BYTES:,} bytes"
    return None


def _values(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.decode("latin-1").lower() == name]
