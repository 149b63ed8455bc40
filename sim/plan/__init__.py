"""Which layout: all legal ones as arrays, screened by memory and by a bound, the best of them replayed.

The steps of a plan are in folders: screen/ (memory and lower bounds of all layouts), search/ (best-first
search; its entry is the function ``plan``), and questions/ (sweeps, sensitivity and others that ask for many
steps). The modules here say which layouts there are:

- space.py (all legal layouts as arrays), axes.py (values of each axis), axis_values.py (as people write
  them), fields.py, crossed.py, cut.py, row_numbers.py (rows of codes and what is cut from them);
- what is legal: legality.py, draft.py (a layout before it is checked), refused.py (reasons in words),
  base_scenarios.py (the scenario under other values of fields that are no axes);
- layouts that are not worth a replay of their own: twins.py, same_twice.py, distinct_placements.py;
- how sure: boldness.py, certainty.py.
"""
