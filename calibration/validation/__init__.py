"""Measured runs beside predictions: read cases, predict each, say how far off, and where.

Knows the case files and the scenario that a case becomes; the simulator sees no id and no outcome. Read
run.py first, then predict.py and summary.py. Judgements of the project's own accuracy are in judge/, errors
by region of what was measured in regions/.

- steps: run.py (every case of every file), predict.py (one case), own_runs.py (a user's own), baselines.py
  (two guesses without a simulator), unread.py (as if no trainer's code had been read);
- figures: summary.py, intervals.py (how many measured steps the intervals hold);
- collectives: collectives.py, collective_grids.py;
- as text: grids.py (which figures, in which order), tables.py (terminal), markdown.py, document.py (JSON);
- as pictures: scatter.py, collective_picture.py, calibration_picture.py.
"""
