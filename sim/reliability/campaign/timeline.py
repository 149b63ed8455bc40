"""Steps and checkpoints between two restarts, in closed form: a fault-free stretch costs the same at any
length.

A stretch is a time in which nothing changes: steps of one length, and after every N-th step a stall for a
checkpoint. Stretches of one incarnation of the job follow one another without a gap. Knows no faults.
"""

from __future__ import annotations

from dataclasses import dataclass

Due = tuple[tuple[int, float], ...]
"""Checkpoints: after every so many steps (of the whole run), a stall of so many seconds."""


@dataclass(frozen=True, slots=True)
class StepPosition:
    """Where the job stands: ``steps`` done, ``part`` of the next one; or before it, what is left of a pause
    and of a checkpoint's stall.
    """

    steps: int
    part: float = 0.0
    stall_s: float = 0.0
    pause_s: float = 0.0


@dataclass(slots=True)
class StepStretch:
    """From ``start_s`` on, at ``place``. A step takes ``step_s``, of which ``useful_s`` is what the same work
    takes with nothing wrong, ``slow_s`` what slow parts add and ``write_slowdown_s`` what the writing of a
    checkpoint meanwhile adds; the rest is missing replicas. ``pause_as`` is what the pause is accounted as.
    """

    start_s: float
    place: StepPosition
    step_s: float
    useful_s: float
    slow_s: float
    due: Due
    pause_as: str = "slow"
    write_slowdown_s: float = 0.0
    end_s: float = float("inf")
    wasted_part: float = 0.0  # of a step that was in flight at the end and does not count

    def time_of(self, steps: int) -> float:
        """When ``steps`` are done and the checkpoint after them, if one is due, has stalled the job."""
        place = self.place
        begin = self.start_s + place.pause_s + place.stall_s
        if steps <= place.steps:
            return begin
        return begin + (steps - place.steps - place.part) * self.step_s + self._stalls(place.steps, steps)

    def stall_at(self, steps: int) -> float:
        """Seconds of checkpoints after that step."""
        if steps <= self.place.steps:
            return self.place.stall_s
        return sum(stall for every, stall in self.due if steps % every == 0)

    def done_by(self, steps: int) -> float:
        """When ``steps`` are done, before any checkpoint after them."""
        return self.time_of(steps) - self.stall_at(steps)

    def _stalls(self, first: int, last: int) -> float:
        total = 0.0
        for every, stall in self.due:
            total += stall * (last // every - first // every)
        return total

    def steps_by(self, time_s: float) -> int:
        """The most steps that are done at that time, checkpoints after the last of them not counted.

        A step within a millionth of a millionth of its end is done: clocks add up with rounding.
        """
        place = self.place
        reach = time_s + 1e-12 * abs(time_s)
        elapsed = reach - self.start_s - place.pause_s - place.stall_s
        if elapsed < (1.0 - place.part) * self.step_s:
            return place.steps
        if len(self.due) <= 1:
            every, stall = self.due[0] if self.due else (1, 0.0)
            since = place.steps % every
            cycles, rest = divmod(elapsed + (since + place.part) * self.step_s, every * self.step_s + stall)
            return place.steps - since + int(cycles) * every + min(every, int(rest / self.step_s))
        high = place.steps + int(elapsed / self.step_s + place.part) + 1
        cost = self.step_s + sum(stall / every for every, stall in self.due)
        slack = sum(stall for _, stall in self.due) / cost
        low = max(place.steps, place.steps + int((elapsed / cost) + place.part - slack) - 2)
        while low < high:  # the last step that is done
            middle = (low + high + 1) // 2
            if self.done_by(middle) <= reach:
                low = middle
            else:
                high = middle - 1
        return low

    def at(self, time_s: float) -> StepPosition:
        """Where the job stands at ``time_s``."""
        place = self.place
        paused = time_s - self.start_s
        if paused < place.pause_s:
            return StepPosition(place.steps, place.part, place.stall_s, place.pause_s - paused)
        steps = self.steps_by(time_s)
        free = self.time_of(steps)
        if steps == place.steps:
            if time_s < free:
                return StepPosition(steps, place.part, free - time_s)
            return StepPosition(steps, min(1.0, place.part + (time_s - free) / self.step_s))
        if time_s < free:
            return StepPosition(steps, 0.0, free - time_s)
        return StepPosition(steps, min(1.0, (time_s - free) / self.step_s))

    def saved_by(self, time_s: float, every: int) -> int:
        """The last multiple of ``every`` whose checkpoint has stalled the job to its end; 0 where there is
        none in this stretch."""
        place = self.at(time_s)
        whole = place.steps - (1 if place.stall_s > 1e-12 * abs(time_s) else 0)
        last = whole // every * every
        began = self.place.steps + (0 if self.place.stall_s > 0 else 1)
        return last if last >= began else 0

    def spent(self, place: StepPosition) -> dict[str, float]:
        """What the time from the start to ``place`` went into, by category. Shares of a step count as they
        are.
        """
        steps = place.steps - self.place.steps + place.part - self.place.part
        stall = self.place.stall_s + self._stalls(self.place.steps, place.steps) - place.stall_s
        spent = {
            "useful": steps * self.useful_s,
            "slow": steps * self.slow_s,
            "degraded": steps * (self.step_s - self.useful_s - self.slow_s - self.write_slowdown_s),
            "checkpoint": stall + steps * self.write_slowdown_s,
        }
        spent[self.pause_as] = spent.get(self.pause_as, 0.0) + self.place.pause_s - place.pause_s
        return spent

    def whole(self, until_s: float) -> dict[str, float]:
        """What all of it went into, up to ``until_s`` where it has not ended."""
        place = self.at(min(self.end_s, until_s))
        if not self.wasted_part:
            return self.spent(place)
        spent = self.spent(StepPosition(place.steps))
        spent["recompute"] = spent.get("recompute", 0.0) + self.wasted_part * self.step_s
        return spent


class CampaignTimeline:
    """The stretches since the last restart, which began with ``steps`` done."""

    def __init__(self, start_s: float, steps: int) -> None:
        self.start_s = start_s
        self.first = steps
        self.stretches: list[StepStretch] = []

    def follow(self, stretch: StepStretch) -> None:
        """The current stretch ends where this one begins."""
        if self.stretches:
            self.stretches[-1].end_s = stretch.start_s
        self.stretches.append(stretch)

    @property
    def current(self) -> StepStretch:
        return self.stretches[-1]

    def saved_by(self, time_s: float, every: int) -> int | None:
        """The last checkpoint of a tier whose stall had ended by then; None: none since the restart."""
        for stretch in reversed(self.stretches):
            if stretch.start_s <= time_s:
                steps = stretch.saved_by(min(time_s, stretch.end_s), every)
                if steps:
                    return steps
        return None

    def account(self, steps: int, until_s: float) -> tuple[dict[str, float], float]:
        """What the time until the checkpoint after ``steps`` went into, and when that was.

        ``until_s`` is now. A checkpoint that nobody has taken (``steps`` of the restart) is the start.
        """
        total: dict[str, float] = {}
        if steps <= self.first:
            return total, self.start_s
        at = self._saved_in(steps, until_s)
        for number, stretch in enumerate(self.stretches[: at + 1]):
            spent = (
                stretch.spent(StepPosition(steps))
                if number == at
                else stretch.whole(min(stretch.end_s, until_s))
            )
            for category, seconds in spent.items():
                total[category] = total.get(category, 0.0) + seconds
        return total, self.stretches[at].time_of(steps)

    def _saved_in(self, steps: int, until_s: float) -> int:
        """The stretch in which the stall of the checkpoint after ``steps`` ended: a stall may be a stretch of
        its own after that of the step.
        """
        found = None
        for number, stretch in enumerate(self.stretches):
            place = stretch.place
            if found is not None and (place.steps > steps or place.part or not place.stall_s):
                break
            if stretch.time_of(steps) <= min(stretch.end_s, until_s) * (1 + 1e-12):
                found = number
        assert found is not None, f"step {steps} was never saved"
        return found

    def everything(self, until_s: float) -> dict[str, float]:
        """What all the time since the restart went into."""
        total: dict[str, float] = {}
        for stretch in self.stretches:
            for category, seconds in stretch.whole(until_s).items():
                total[category] = total.get(category, 0.0) + seconds
        return total
