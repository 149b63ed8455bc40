"""The one way in which the simulator says that it cannot model something yet."""

from __future__ import annotations


class NotSupported(ValueError):
    """A legal scenario that the simulator cannot express. ``field`` is the dotted scenario field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
