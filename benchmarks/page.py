"""Times the page's answers on this machine, beside their targets: ``python benchmarks/page.py``.

A server as a user starts it, asked as the page asks: from the launch to the first answer, the catalogue and
the first answer of a page that opens then, changed fields of Llama 3 70B on 128 H100, and a plan of that job
with its first points. What a browser draws is not in it. No test asserts a time; this is for people.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from stepsim.page.first_scenario import FIRST

COMMAND = [sys.executable, "-m", "stepsim.cli.main", "serve", "--no-browser", "--port", "0"]
BATCHES = (512, 128, 384, 192, 320, 448, 512, 128, 384, 192)


def events(port: int, token: str, task: str, asked: dict[str, Any]) -> Iterator[tuple[float, str]]:
    """Seconds after the question, and the event, of each message."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"content-type": "application/json", "x-stepsim-token": token}
    began = time.perf_counter()
    connection.request("POST", f"/api/{task}", json.dumps(asked), headers)
    reply = connection.getresponse()
    for line in reply:
        yield time.perf_counter() - began, json.loads(line)["event"]
    yield time.perf_counter() - began, "end"
    connection.close()


def first_of(port: int, token: str, task: str, asked: dict[str, Any]) -> dict[str, float]:
    """When each event was first heard."""
    found: dict[str, float] = {}
    for at_s, event in events(port, token, task, asked):
        found.setdefault(event, at_s)
    return found


def main() -> None:
    """Print a line for each figure."""
    began = time.perf_counter()
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)\n", server.stdout.readline())
        assert address
        port, token = int(address[1]), address[2]
        try:
            first_of(port, token, "predict", {"document": FIRST})
            print(f"from the launch to an answer     {time.perf_counter() - began:6.2f} s")
            opened = first_of(port, token, "catalogue", {})["end"]
            opened += first_of(port, token, "predict", {"document": FIRST})["result"]
            print(f"catalogue and first answer       {opened:6.2f} s  (target 1.0 s)")
            changed = []
            for batch in BATCHES:
                document = {**FIRST, "training": {**FIRST["training"], "global_batch": batch}}
                changed.append(first_of(port, token, "predict", {"document": document})["result"])
            print(f"a changed field, median          {statistics.median(changed):6.2f} s  (target 0.3 s)")
            plan = first_of(port, token, "plan", {"document": FIRST, "top": 5})
            print(f"first points of a plan           {plan['points']:6.2f} s  (target 1.0 s)")
            print(f"the whole plan                   {plan['end']:6.2f} s  (target 5.0 s)")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
