"""The few constants that only step times show, fitted over measured cases: ``stepsim calibrate steps``.

Read report.py first (a fit and what it is worth), then step_constants.py (how constants are found).

- what is fitted on: rows.py; how one constant is searched: search.py; without a source: left_out.py;
- how wide intervals are: interval_terms.py and source_terms.py, both by two_pieces.py, and unread_spread.py;
- what is written: files.py, page.py.
"""
