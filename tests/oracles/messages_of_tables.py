"""Everything that is wrong with a table of actions whose messages move by a rule, in one call.

First the table by itself (orders/validate.py); then, if its ranks could run it with messages that block
nobody, its messages under the rule (p2p/deadlock.py).
"""

from __future__ import annotations

from collections.abc import Callable

from stepsim.schedules.orders import validate as table
from stepsim.schedules.orders.action import Orders
from stepsim.schedules.orders.schedule import Placement, Shape
from stepsim.schedules.orders.validate import Reason, TableProblem
from stepsim.schedules.p2p.deadlock import instruction_problems
from stepsim.schedules.p2p.point_to_point import point_to_point


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
) -> tuple[TableProblem, ...]:
    """Everything that is wrong with the table, or else with its messages.

    A rank that holds too many activations still runs, so that is named beside problems of messages.
    Raises ValueError for an unknown rule and for orders that the rule is not defined for.
    """
    found = table.find_problems(orders, shape, rank_of, in_flight)
    if any(problem.reason is not Reason.IN_FLIGHT for problem in found):
        return found
    return found + message_problems(orders, shape, rank_of, rule)


def message_problems(orders: Orders, shape: Shape, rank_of: Placement, rule: str) -> tuple[TableProblem, ...]:
    """Which ranks wait for each other for ever under the rule, at which actions.

    ``orders`` have all their work on the right ranks. Raises ValueError for an unknown rule and for orders
    that the rule is not defined for.
    """
    return instruction_problems(point_to_point(orders, shape, rank_of, rule), f"rule {rule}")
