"""``stepsim serve`` as a process: what it prints, who may ask it, and that it leaves no process behind."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from page_client import SMALL
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.page.first_scenario import FIRST

pytestmark = [
    pytest.mark.xdist_group("page"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are counted by /proc"),
]

COMMAND = [sys.executable, "-m", "stepsim.cli.main", "serve", "--no-browser", "--port", "0"]


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A server, its port and its token."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)\n", server.stdout.readline())
        assert found
        try:
            yield server, int(found[1]), found[2]
        finally:
            server.kill()


def status_of(port: int, token: str, document: object) -> int:
    """Of a prediction that is read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", "x-stepsim-token": token}
    with closing(connection):
        connection.request("POST", "/api/predict", json.dumps({"document": document}), headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status


@contextmanager
def planning(port: int, token: str) -> Iterator[None]:
    """A plan that has begun to search, and that nobody waits for any more at the end."""
    body = json.dumps({"document": FIRST})
    head = (
        f"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"X-Stepsim-Token: {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall((head + body).encode())
        heard = b""
        while b"replayed" not in heard:
            more = line.recv(1 << 16)
            assert more, "the plan ended before it replayed anything"
            heard += more
        yield


def below(pid: int) -> set[int]:
    """Processes that a process has started, directly or through others."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.add(child)
            todo.append(child)
    return found


def gone(pids: set[int], within_s: float = 20.0) -> set[int]:
    """Those of ``pids`` that still run after ``within_s``."""
    left = set(pids)
    until = time.monotonic() + within_s
    while left and time.monotonic() < until:
        left = {pid for pid in left if Path(f"/proc/{pid}").exists() and not zombie(pid)}
        time.sleep(0.1)
    return left


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(how: signal.Signals) -> None:
    with served() as (server, port, token):
        assert status_of(port, token, SMALL) == 200
        started = below(server.pid)
        assert started
        os.kill(server.pid, how)
        server.wait(30)
        assert gone(started) == set()


@pytest.mark.slow
def test_a_reader_that_leaves_has_its_plan_ended() -> None:
    with served() as (server, port, token):
        assert status_of(port, token, SMALL) == 200
        workers = below(server.pid)
        with planning(port, token):
            assert status_of(port, token, SMALL) == 200  # another tab is answered meanwhile
        assert any(not gone({pid}, 5.0) for pid in sorted(workers, reverse=True))  # one was killed
        assert status_of(port, token, SMALL) == 200


def test_it_listens_on_this_machine_alone() -> None:
    with served() as (_, port, _), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)  # the loopback has more addresses than one


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(app, ["serve", "--no-browser", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "--port" in done.output
