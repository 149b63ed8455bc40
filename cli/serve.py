"""``stepsim serve``: the local page."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import say


def serve(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="Where the page is; default 8710, or a free one where that is taken.",
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, or only print its address.")
    ] = True,
) -> None:
    """Show the page: choose a job and see its step, plan and strike it, in a browser on this machine.

    Needs the extra `page`. Stop it with Ctrl-C.
    """
    from ..page.serve import serve as serve_page

    def opened(address: str) -> None:
        say(address)
        say("stepsim: the page is there until you press Ctrl-C", err=True)
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve_page(port, opened)
    except KeyboardInterrupt:
        say("", err=True)
