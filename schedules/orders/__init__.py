"""What pipeline schedules are made of: actions, each rank's order of them, and checks of any such table.

Read action.py first (torch's notation), then schedule.py (what every schedule is).

- orders that several schedules share: turns.py (1F1B and interleaved), counted.py, overlapped.py;
- a table of actions by itself: table.py, table_file.py (torch's CSV), validate.py (whether it can be run),
  circles.py (deadlocks), dependencies.py, progress.py;
- figures of an order: timeline.py, in_flight.py (activations that are held).
"""
