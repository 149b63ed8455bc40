"""The page as its tests ask it: an application with workers, and requests as its own code sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from stepsim.page.app import application
from stepsim.page.workers import PageWorkers

TOKEN = "the-token-of-this-launch"
HERE = "http://127.0.0.1:8710"

SMALL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 16, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 4, "pp": 2, "zero": 1, "sequence_parallel": True},
    "training": {"seq_length": 2048, "micro_batch": 1, "global_batch": 16, "precision": "bf16"},
    "software": "nemo-2025",
}


@contextmanager
def page(size: int = 2) -> Iterator[TestClient]:
    """A running page, and a client with its token."""
    client = TestClient(application(TOKEN, PageWorkers(size=size)), base_url=HERE)
    client.headers["x-stepsim-token"] = TOKEN
    with client:
        yield client


def events(client: TestClient, task: str, **asked: Any) -> dict[str, dict[str, Any]]:
    """The messages that answer a request, by their event; the last one of each."""
    reply = client.post(f"/api/{task}", json=asked)
    return {one["event"]: one for one in map(json.loads, reply.text.splitlines())} | {
        "status": reply.status_code
    }


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """``document`` with a dotted field set to ``value``."""
    first, _, rest = path.partition(".")
    inner = document.get(first)
    below = changed(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return {**document, first: below}
