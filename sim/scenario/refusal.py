"""The one way in which the simulator says that it cannot model something yet."""

from __future__ import annotations


class NotSupported(ValueError):
    """A legal scenario that the simulator cannot express. ``field`` is the dotted scenario field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return NotSupported, (self.field, self.message)
