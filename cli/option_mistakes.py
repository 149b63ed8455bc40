"""A mistake in a command line as one line: which option, what stood there, what would be right.

typer says it in four lines, of which three are the same for every mistake, and does not repeat the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pydantic import ValidationError

_NO_COMMAND = re.compile(r"No such command ['\"](.*?)['\"]\.")


def option_mistake(error: BaseException) -> str | None:
    """The line for an error of typer's; None where its text is a page: the help of a bare command."""
    context = getattr(error, "ctx", None)
    said = _refused_value(error) or _unknown_word(error, context)
    if said is None:
        text = str(getattr(error, "format_message", error.__str__)())
        if text.count("\n") > 1:
            return None
        said = text[:1].lower() + text[1:]
    return f"stepsim: {said.rstrip('.')}" + (f" ({context.command_path} --help)" if context else "")


def _refused_value(error: BaseException) -> str | None:
    """The message for a value of the wrong kind or out of its bounds; None for other mistakes."""
    from pydantic import ValidationError

    cause = error.__cause__
    if not (isinstance(error, typer.BadParameter) and error.param and isinstance(cause, ValidationError)):
        return None
    option = error.param.param_type_name == "option"
    name = error.param.opts[0] if option else error.param.metavar or str(error.param.name).upper()
    return f"{name}: {_expected(cause)}"


def _expected(cause: ValidationError) -> str:
    from ..hardware.explain import errors_of, explained

    return explained(errors_of(cause)[0], object)


def _unknown_option(option: str, known: Collection[str]) -> Exception:
    """The error, with the nearest option where their names are alike: the dashes of both say nothing."""
    from difflib import SequenceMatcher

    from ..hardware.catalogue import UnknownName, unknown_name

    if (same := _ELSEWHERE.get(option)) in known:
        return UnknownName("option", option, tuple(known), same)
    error = unknown_name("option", option, known)
    if error.nearest is None:
        return error
    alike = SequenceMatcher(None, option.strip("-").lower(), error.nearest.strip("-")).ratio()
    return error if alike >= _ALIKE else UnknownName("option", option, tuple(known), None)


_ELSEWHERE = {"--vary": "--set", "--fix": "--set"}
"""Options of one command that have another name in others."""

_ALIKE = 0.6
"""Least similarity of two names that are taken for one another; difflib's own default."""


def _unknown_word(error: BaseException, context: typer.Context | None) -> str | None:
    """The message for an option or command that does not exist, with the known ones; else None."""
    from ..hardware.catalogue import unknown_name

    if context is None:
        return None
    if option := getattr(error, "option_name", None):
        known = [word for one in context.command.params for word in one.opts if word.startswith("--")]
        # An option that stands there but was used wrongly is no unknown one.
        return None if option in known else str(_unknown_option(option, known))
    commands: Collection[str] = getattr(context.command, "commands", ())
    word = _NO_COMMAND.match(str(error))  # typer keeps the word in its sentence alone
    return str(unknown_name("command", word[1], commands)) if word else None
