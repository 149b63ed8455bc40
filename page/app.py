"""The application: the page's files, and the endpoints that workers answer.

Knows paths, bodies and statuses. Who may ask is in guard.py, how work is done in workers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .documents import named_files
from .guard import MOST_BYTES, Guard
from .replies import answer, error_message, refusal, stream, written
from .tasks import TASKS
from .workers import Busy, PageWorkers, TimeIsUp

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

BODY_S = 10.0
"""Seconds within which the body of a request has to arrive."""

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

Endpoint = Callable[["Request"], Coroutine[Any, Any, "Response"]]


def application(token: str, pool: PageWorkers) -> Guard:
    """The page for whoever has ``token``; ``pool`` works while the application runs."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    @asynccontextmanager
    async def living(_: Any) -> AsyncIterator[None]:
        await pool.begin()
        try:
            yield
        finally:
            await pool.close()

    routes = [Route(f"/api/{name}", _endpoint(name, pool), methods=["POST"]) for name in TASKS]
    routes += [Route(path, _file(name), methods=["GET"]) for path, name in _static_paths().items()]
    return Guard(Starlette(routes=routes, lifespan=living), token)


def _static_paths() -> dict[str, str]:
    """The files of the page by the path that each has."""
    names = sorted(one.name for one in files(f"{__package__}").joinpath("static").iterdir())
    shown = {f"/{name}": name for name in names if f".{name.rpartition('.')[2]}" in KINDS}
    return {**shown, "/": "index.html"}


def _file(name: str) -> Endpoint:
    async def send(_: Request) -> Response:
        from starlette.responses import Response

        return Response(_content(name), media_type=f"{KINDS[name[name.rindex('.') :]]}; charset=utf-8")

    return send


@cache
def _content(name: str) -> bytes:
    return files(f"{__package__}").joinpath("static", name).read_bytes()


def _endpoint(name: str, pool: PageWorkers) -> Endpoint:
    async def ask(request: Request) -> Response:
        try:
            body = await _body(request)
        except ValueError as error:
            return refusal(400, str(error))
        except OverflowError:
            return refusal(413, f"a request has at most {MOST_BYTES:,} bytes")
        if found := named_files(body.get("document")) or named_files(body):
            problems = [{"path": path, "message": why} for path, why in found[:20]]
            lines = "\n".join(f"{one['path']}: {one['message']}" for one in problems)
            return answer({"event": "error", "message": lines, "problems": problems}, 422)
        return await _answered(request, pool.ask(name, body, TASKS[name].limit_s))

    return ask


async def _body(request: Request) -> Mapping[str, Any]:
    """The JSON object of a request. ValueError where it is none, OverflowError where it is too long."""
    from ..hardware.files import JsonLimits, load_json

    content = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                content += part
                if len(content) > MOST_BYTES:
                    raise OverflowError
    except TimeoutError:
        raise ValueError("the request did not arrive in time") from None
    body = load_json(bytes(content), "request", JsonLimits(bytes=MOST_BYTES, depth=32, entries=100_000))
    if not isinstance(body, dict):
        raise ValueError("a request is a JSON object")
    return body


async def _answered(request: Request, messages: AsyncIterator[bytes]) -> Response:
    """The messages as a stream; where the first is an error or none comes, a refusal with its status."""
    try:
        first = await _first(request, messages)
    except Busy:
        return refusal(503, "too many requests wait; try again in a moment")
    except TimeIsUp:
        return refusal(504, TOOK_TOO_LONG)
    if first is None:
        return refusal(499, "the page has left")
    if b'"event":"error"' in first[:24]:
        from starlette.responses import Response

        await _closed(messages)
        status = 500 if b'"defect":true' in first else 422
        return Response(first, status, media_type="application/json")
    return stream(_lines(first, messages))


TOOK_TOO_LONG = (
    "this takes longer, or more memory, than the page allows: use the command line, or a smaller job"
)


async def _first(request: Request, messages: AsyncIterator[bytes]) -> bytes | None:
    """The first message; None where the reader leaves before."""
    reading = asyncio.ensure_future(anext(messages))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        return None
    finally:
        leaving.cancel()
        if not reading.done():
            reading.cancel()
            with suppress(asyncio.CancelledError, TimeIsUp, Busy):
                await reading


async def _left(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.1)


async def _lines(first: bytes, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first + b"\n"
    try:
        async for message in messages:
            yield message + b"\n"
    except TimeIsUp:
        yield written(error_message(TOOK_TOO_LONG)) + b"\n"
    finally:
        await _closed(messages)


async def _closed(messages: AsyncIterator[bytes]) -> None:
    """Let the worker go, or have it killed."""
    close = getattr(messages, "aclose", None)
    if close is not None:
        await close()
