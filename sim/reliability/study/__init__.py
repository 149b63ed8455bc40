"""Many replications of a campaign, and what they say: means with intervals, variants, optima, sweeps.

Read study.py first (replications until an interval is narrow enough), with statistics.py.

- other campaigns beside it: variants.py (what if), sweep.py, optimum.py (the interval of checkpoints);
- exact expectations: closed_forms.py; money: money.py;
- records of real faults: recorded.py, fits.py (laws of their times).
"""
