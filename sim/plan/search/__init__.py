"""The best layouts, proven: a best-first search with exact replays, its workers, journal and certificate.

Read plan.py first, which is the whole of planning in one function, then searching.py and best_first.py.

- what is searched: candidates.py (layouts with their bounds, as arrays), objective.py (what is to be least);
- the search: searching.py, best_first.py, findings.py (what it found so far), front.py and front_search.py
  (Pareto fronts of time, memory and cost);
- replays: judging.py (each layout at most once), judged.py (what one replay says), workers.py, on_ray.py,
  journal.py (what an interrupted plan goes on from);
- the answer: layout_plan.py, certificate.py (what was proven), shown.py, layout_in_words.py, alternatives.py
  (what other layouts lose), bold.py (a faster layout that may not fit), choice_certainty.py (how sure the
  choice is), goodput.py (under faults), emission.py (whether a framework's files can say a layout).
"""
