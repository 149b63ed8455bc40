"""Everything that is wrong with a table of actions whose messages move by a rule, in one call.

First the table by itself (orders/validate.py); then, if its ranks could run it with messages that block
nobody, its messages under the rule (deadlock.py). Knows no seconds and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..orders import validate as table
from ..orders.action import Orders
from ..orders.schedule import Placement, Shape
from ..orders.validate import Problem, Reason
from .deadlock import message_problems


def validate(
    orders: Orders,
    shape: Shape,
    rank_of: Placement,
    rule: str,
    in_flight: Callable[[int, Shape], int] | None = None,
) -> None:
    """Raise ValueError naming rank, position and action of what is wrong, if anything is."""
    table.refuse(find_problems(orders, shape, rank_of, rule, in_flight))


def find_problems(
    orders: Orders,
    shape: Shape,
    rank_of: Placement,
    rule: str,
    in_flight: Callable[[int, Shape], int] | None = None,
) -> tuple[Problem, ...]:
    """Everything that is wrong with the table, or else with its messages.

    A rank that holds too many activations still runs, so that is named beside problems of messages.
    Raises ValueError for an unknown rule and for orders that the rule is not defined for.
    """
    found = table.find_problems(orders, shape, rank_of, in_flight)
    if any(problem.reason is not Reason.IN_FLIGHT for problem in found):
        return found
    return found + message_problems(orders, shape, rank_of, rule)
