"""The page of all schedules: written anew in memory, it is the one that is committed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepsim.schedules.pipeline import get, names
from stepsim.sim.report.schedules.gallery import gallery_files, small_example
from stepsim.sim.report.schedules.texts import texts, words_of


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return gallery_files("schedules")


def test_the_committed_page_is_up_to_date(root: Path, written: dict[str, str]) -> None:
    """`make gallery` writes it."""
    stale = [
        name for name, content in written.items() if (root / "docs" / name).read_text("utf-8") != content
    ]
    assert stale == []


def test_no_picture_is_left_over(root: Path, written: dict[str, str]) -> None:
    committed = {f"schedules/{path.name}" for path in (root / "docs" / "schedules").iterdir()}
    assert committed == {name for name in written if name != "schedules.md"}


@pytest.mark.parametrize("name", names())
def test_every_schedule_has_words(name: str) -> None:
    words = words_of(name)
    assert all(vars(words)[field].strip() for field in vars(words))


def test_a_schedule_without_words_is_told_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"gpipes; .*what, source, bubble"):
        words_of("gpipes")


def test_texts_have_no_sentence_twice() -> None:
    said = [words.what for words in texts().values()] + [words.use for words in texts().values()]
    sentences = [s for text in said for s in re.split(r"(?<=\.) ", text)]
    assert len(sentences) == len(set(sentences))


@pytest.mark.parametrize("name", names())
def test_the_small_example_shows_a_whole_schedule(name: str, written: dict[str, str]) -> None:
    done = small_example(get(name))
    assert done.shape.ranks == 4
    page = written["schedules.md"]
    assert f"](schedules/{name}.svg)" in page
    assert f"(#{name})" in page
    assert f'<a id="{name}"></a>' in page
