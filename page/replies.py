"""What the page's endpoints answer: JSON, a stream of JSON lines, or a refusal.

Knows how answers are written. Does not know what they say.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.responses import Response

LINES = "application/x-ndjson"


def written(document: object) -> bytes:
    """``document`` as JSON; numbers of numpy are numbers, and what is not finite is null."""
    import orjson

    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=_plain)


def _plain(value: Any) -> Any:
    """What orjson does not know: numbers of numpy that are no arrays, and anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


def answer(document: object, status: int = 200) -> Response:
    """One JSON document."""
    from starlette.responses import Response

    return Response(written(document), status, media_type="application/json")


def refusal(status: int, message: str) -> Response:
    """An error as the page shows it: what is wrong, in ``message``."""
    return answer(error_message(message), status)


def error_message(message: str) -> dict[str, Any]:
    """The last message of a request that failed."""
    return {"event": "error", "message": message, "problems": []}


def stream(lines: AsyncIterable[bytes]) -> Response:
    """JSON documents, one a line, each sent when it is known."""
    from starlette.responses import StreamingResponse

    return StreamingResponse(lines, media_type=LINES)
