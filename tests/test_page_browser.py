"""The page in a browser, from its first answer to a copied link; nothing is asked of another machine.

Needs the extra ``browser`` and a Chromium of the system (CHROMIUM=/path/to/it); skipped with the reason
where either is missing. With PAGE_PICTURES=DIR the views are kept there as pictures.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stepsim.calibration.explain.explained import explained
from stepsim.calibration.explain.reading import read_traces

sync_api = pytest.importorskip("playwright.sync_api", reason="the extra browser is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no Chromium: apt-get install chromium, or CHROMIUM=/path", allow_module_level=True)

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("page")]

SLOW_MS = 120_000
VIEWS = ("step", "plan", "compare", "faults")
PICTURES = os.environ.get("PAGE_PICTURES")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page of one launch, with its token."""
    command = [sys.executable, "-m", "stepsim.cli.main", "serve", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    found = browser.new_context(viewport={"width": 1440, "height": 1000})
    found.set_default_timeout(SLOW_MS)
    yield found
    found.close()


@pytest.fixture
def page(context: Any, address: str) -> Iterator[Any]:
    """The first answer is there. Errors on the console and requests to elsewhere fail the test at its end."""
    wrong: list[str] = []
    found = context.new_page()
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda said: wrong.extend(errors_of(said)))
    origin = address.split("/#")[0]
    found.on(
        "request", lambda asked: wrong.extend([asked.url] * (not asked.url.startswith((origin, "blob:"))))
    )
    found.goto(address)
    found.wait_for_selector(".card .value")
    yield found
    assert wrong == []


def errors_of(said: Any) -> list[str]:
    """What the console tells of as wrong; a refused document is none, though browsers note its status."""
    return [said.text] if said.type == "error" and "422" not in said.text else []


def step_time(page: Any) -> str:
    return str(page.inner_text(".card .value"))


def change(page: Any, field: str, value: str) -> str:
    """Set a field; the new step time, which differs."""
    before = step_time(page)
    page.fill(f"#f-{field}", value)
    page.press(f"#f-{field}", "Enter")
    page.wait_for_function("old => document.querySelector('.card .value').textContent !== old", arg=before)
    return step_time(page)


def picture(page: Any, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


def serious(page: Any) -> list[tuple[str, list[str]]]:
    """What the accessibility audit finds that keeps people out, by rule; nothing without axe-core."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        return []
    return [
        (str(one["id"]), [str(node["target"]) for node in one["nodes"]][:4])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def test_the_token_leaves_the_address(page: Any) -> None:
    page.wait_for_function("location.hash.length > 40")
    assert "token" not in page.url


def test_a_change_can_be_taken_back(page: Any) -> None:
    first = step_time(page)
    second = change(page, "training-global_batch", "512")
    page.go_back()
    page.wait_for_function("old => document.querySelector('.card .value').textContent === old", arg=first)
    assert page.input_value("#f-training-global_batch") == "256"
    page.go_forward()
    page.wait_for_function("old => document.querySelector('.card .value').textContent === old", arg=second)


def test_a_mistake_stands_beside_its_field(page: Any) -> None:
    page.fill("#f-parallelism-tp", "7")
    page.press("#f-parallelism-tp", "Enter")
    page.wait_for_selector("[aria-invalid=true]")
    assert page.locator("#choice .error:not(:empty)").count() >= 1
    page.fill("#f-parallelism-tp", "8")
    page.press("#f-parallelism-tp", "Enter")
    page.wait_for_selector("[aria-invalid=true]", state="detached")


def test_the_answer_on_the_screen_is_not_asked_again(page: Any) -> None:
    page.wait_for_selector("#in-step:not([aria-busy])")
    asked: list[str] = []
    page.on("request", lambda one: asked.extend([one.url.rpartition("/")[2]] * ("/api/" in one.url)))
    for view in (*VIEWS, "step"):
        page.click(f"#view-{view}")
    assert asked == []
    change(page, "training-global_batch", "512")
    assert asked == ["predict"]


def test_every_other_field_is_behind_more(page: Any) -> None:
    before = step_time(page)
    page.click(".more > summary")
    page.fill("#more-filter", "what_if.nic")
    row = page.locator("#f-cluster-what_if-nic")
    row.wait_for()
    assert page.locator(".more-list .field:visible").count() < 5
    row.fill("0.2")
    row.press("Enter")
    page.wait_for_function("old => document.querySelector('.card .value').textContent !== old", arg=before)


def test_a_link_shows_the_same_elsewhere(page: Any, browser: Any, address: str) -> None:
    shown = change(page, "training-seq_length", "4096")
    page.wait_for_function("location.hash.length > 40")
    link = page.url
    other = browser.new_context().new_page()
    other.set_default_timeout(SLOW_MS)
    other.goto(link)
    other.fill("#token", address.split("token=")[1])  # a fresh browser does not know this launch
    other.press("#token", "Enter")
    other.wait_for_selector(".card .value")
    assert step_time(other) == shown
    assert other.input_value("#f-training-seq_length") == "4096"
    other.context.close()


def test_the_schedule_is_reached_by_keys(page: Any) -> None:
    canvas = page.locator("canvas")
    canvas.wait_for()
    whole = canvas.evaluate("one => one.toDataURL()")
    canvas.focus()
    for key in ("+", "+", "ArrowRight"):
        canvas.press(key)
    assert canvas.evaluate("one => one.toDataURL()") != whole
    canvas.press("Home")
    assert canvas.evaluate("one => one.toDataURL()") == whole


def small_job(page: Any) -> None:
    """A job whose plan takes seconds."""
    page.select_option("#f-model", "llama3-8b")
    page.fill("#f-cluster-gpus", "16")
    page.press("#f-cluster-gpus", "Enter")
    page.fill("#f-parallelism-pp", "2")
    page.press("#f-parallelism-pp", "Enter")
    page.fill("#f-parallelism-vpp", "2")
    page.press("#f-parallelism-vpp", "Enter")


def test_plan_brush_open_pin_compare(page: Any) -> None:
    small_job(page)
    page.click("#view-plan")
    page.click("#in-plan button.main")
    page.wait_for_selector("#in-plan svg circle[data-i]")
    page.wait_for_selector("#in-plan table button")
    page.wait_for_selector("#in-plan button.main:enabled")
    points = page.locator("#in-plan circle[data-i]").count()
    axis = page.locator(".hit").first
    axis.focus()
    for _ in range(4):
        axis = page.locator(".hit").first
        axis.press("ArrowDown")
    kept = page.locator("#in-plan circle[data-i]").count()
    assert 0 < kept < points
    page.locator(".hit").first.press("Delete")
    assert page.locator("#in-plan circle[data-i]").count() == points
    box = page.locator(".hit").nth(1).bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] - 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] * 0.7)
    page.mouse.up()
    assert page.locator("#in-plan circle[data-i]").count() < points
    picture(page, "plan")
    assert serious(page) == []
    for i in range(2):
        page.locator("#in-plan table").first.get_by_text("Pin", exact=True).nth(i).click()
    page.click("#view-compare")
    page.wait_for_selector("#in-compare table")
    assert page.locator("#in-compare thead strong").count() == 2
    picture(page, "compare")
    assert serious(page) == []
    page.click("#view-plan")
    page.locator("#in-plan table").first.get_by_text("Open", exact=True).first.click()
    page.wait_for_selector("#in-step:visible")


def test_names_of_layouts_are_links(page: Any, context: Any) -> None:
    """Followed in place they open the layout, and back is where one was; another tab shows the same."""
    small_job(page)
    page.click("#view-plan")
    page.click("#in-plan button.main")
    page.wait_for_selector("#in-plan button.main:enabled")
    link = page.locator("#in-plan table a[href^='#']").first
    name = link.inner_text()
    other = context.new_page()
    other.goto(page.url.split("#")[0] + link.get_attribute("href"))
    other.wait_for_selector(".card .value")
    link.click()
    page.wait_for_selector("#in-step:visible")
    page.wait_for_selector("#in-step:not([aria-busy])")
    assert step_time(page) == step_time(other)
    page.click("#pin")
    page.click("#view-compare")
    page.wait_for_selector("#in-compare thead a[href^='#']")
    page.go_back()
    page.go_back()
    page.go_back()
    page.wait_for_selector("#in-plan:visible")
    assert link.inner_text() == name


def test_axes_have_round_numbers(page: Any) -> None:
    small_job(page)
    page.click("#view-plan")
    page.click("#in-plan button.main")
    page.wait_for_selector("#in-plan button.main:enabled")
    for selector, unit in (("#in-plan .tick-x", " s"), ("#in-plan .tick-y", " GB")):
        texts = page.locator(selector).all_text_contents()
        assert 3 <= len(texts) <= 10
        assert all(text.endswith(unit) for text in texts)
        assert all(is_round(float(text.removesuffix(unit))) for text in texts), texts


def is_round(number: float) -> bool:
    """Whether it is a small multiple of 1, 2, 2.5 or 5 times a power of ten: it has two digits, or ends in
    a quarter."""
    digits = f"{number:.2e}".partition("e")[0]
    return not number or digits.endswith(("0", "25", "75"))


RANGES = [(8.7, 104), (0.31, 0.52), (3, 11), (1e-3, 900), (0.0013, 0.0017), (11.0, 11.5), (1e-7, 2e-7)]
TICKS = """async ranges => {
    const found = await import("/ticks.js");
    const of = (values, many) => many(values).map(one => [one.at, one.text]);
    return ranges.map(([low, high]) => ({
        even: found.ticks(low, high, 6), log: found.logTicks(low, high, 9),
        texts: of(found.logTicks(low, high, 9), found.timeTicks)}));
}"""


def test_ticks_are_round_and_within(page: Any) -> None:
    """Equally far apart by a round step, or 1, 2 and 5 times powers of ten; never more than asked."""
    for (low, high), found in zip(RANGES, page.evaluate(TICKS, RANGES), strict=True):
        even, log = found["even"], found["log"]
        assert 3 <= len(even) <= 7
        assert 3 <= len(log) <= 9
        steps = [b - a for a, b in pairwise(even)]
        assert max(steps) == pytest.approx(min(steps), rel=1e-6)
        assert f"{steps[0]:.3e}"[:5] in ("1.000", "2.000", "2.500", "5.000")
        assert all(low * (1 - 1e-6) <= one <= high * (1 + 1e-6) for one in (*even, *log))
        assert all(at / step == pytest.approx(round(at / step)) for at in even for step in steps[:1])
        units = {text.split()[1] for _, text in found["texts"]}
        assert len(units) == 1
        scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[units.pop()]
        assert all(float(text.split()[0]) * scale == pytest.approx(at) for at, text in found["texts"])


def test_a_plan_can_be_stopped(page: Any) -> None:
    page.click("#view-plan")
    page.click("#in-plan button.main")
    page.locator("#in-plan").get_by_text("Stop", exact=True).click()
    page.wait_for_selector("#in-plan button.main:enabled")
    page.click("#view-step")
    assert change(page, "training-global_batch", "384")  # another answer comes all the same


def test_strike_a_gpu_and_simulate_weeks(page: Any) -> None:
    page.click("#view-faults")
    page.locator(".gpu").nth(3).click()
    page.wait_for_selector("#in-faults .big")
    assert page.locator(".gpu.struck").count() == 1
    page.get_by_role("button", name="Simulate weeks").click()
    page.wait_for_selector("#in-faults .bars.long")
    page.get_by_role("button", name="Sweep").click()
    page.wait_for_selector("#in-faults .chart svg")
    picture(page, "faults")
    assert serious(page) == []
    page.locator(".gpu.struck").click()
    page.wait_for_selector(".gpu.struck", state="detached")


def test_what_is_shown_can_be_saved(page: Any) -> None:
    for choice, begins in (("json", "{"), ("csv", "ranks"), ("svg", "<?xml")):
        with page.expect_download() as downloaded:
            page.select_option("#copy", choice)
        assert Path(downloaded.value.path()).read_text(encoding="utf-8").startswith(begins)


def test_the_trace_is_what_explain_reads(page: Any, tmp_path: Path) -> None:
    small_job(page)
    change(page, "training-global_batch", "64")
    page.wait_for_selector("#in-step:not([aria-busy])")
    with page.expect_download() as downloaded:
        page.select_option("#copy", "trace")
    assert downloaded.value.suggested_filename == "trace.json.gz"
    trace = tmp_path / "trace.json.gz"
    downloaded.value.save_as(trace)
    document = json.loads(gzip.decompress(trace.read_bytes()))
    told = explained(read_traces([trace])[0])
    assert told.step_s == pytest.approx(document["stepsim"]["step_time_s"], abs=1e-8)


def test_copies_are_what_the_commands_read(page: Any, context: Any) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    change(page, "training-global_batch", "512")
    for choice, part in (
        ("set", "training.global_batch=512"),
        ("yaml", "global_batch: 512"),
        ("megatron-lm", "--global-batch-size 512"),
    ):
        page.select_option("#copy", choice)
        page.wait_for_function(
            "part => navigator.clipboard.readText().then(text => text.includes(part))", arg=part
        )


@pytest.mark.parametrize("width", [390, 768, 2560])
def test_no_width_scrolls_sideways(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for view in VIEWS:
        page.click(f"#view-{view}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("#view-step")
    picture(page, f"step-{width}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_audit_finds_nothing_serious(page: Any, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.locator("canvas").wait_for()
    picture(page, f"step-{theme}")
    page.click(".more > summary")
    for view in VIEWS:
        page.click(f"#view-{view}")
        assert serious(page) == []
