"""``stepsim serve``: the page on this machine, until it is stopped.

Knows ports, the token and the browser.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

HOST = "127.0.0.1"
PORT = 8710
"""Taken where it is free and no other is asked for."""

CONNECTIONS = 128
WORKERS = 3
"""One tab changes a field, another plans, and a third still gets an answer."""


def serve(port: int | None, opened: Callable[[str], None]) -> None:
    """Serve until interrupted; ``opened`` hears the address once connections are accepted.

    ``port`` None: PORT, or any where that is taken. ValueError where the one that was asked for is taken, or
    the extra is not installed.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise ValueError("the page needs starlette and uvicorn: pip install 'stepsim[page]'") from None
    from .app import application
    from .workers import PageWorkers

    listening = listening_socket(port)
    token = secrets.token_urlsafe(24)
    workers = PageWorkers(size=WORKERS)
    config = uvicorn.Config(
        application(token, workers),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http="h11",
        loop="asyncio",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    with listening:
        opened(f"http://{HOST}:{listening.getsockname()[1]}/#token={token}")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            workers.kill()


def listening_socket(port: int | None) -> socket.socket:
    """A socket on 127.0.0.1 that accepts connections. ValueError where the port is taken."""
    for tried in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((HOST, tried), backlog=CONNECTIONS)
        except OSError as error:
            why = error.strerror or str(error)
    raise ValueError(f"--port {port}: {why}; leave it out to have a free one")
