"""How accurate the project's own predictions are, for docs/accuracy.md: errors, ranks of layouts, verdicts.

Read accuracy_page.py first; targets.py has what the project holds itself to.

- errors that no fit has seen: held_out.py (families), source_left_out.py (sources), gpu_left_out.py (GPUs),
  own_steps.py (a cluster of which a few steps are known);
- choices of layouts: choices.py, choice_tables.py, ranking.py, each_sweep.py, rule_of_thumb.py (in the
  planner's place), nanotron.py (one large sweep in detail);
- beside others: published.py (other simulators), regimes.py (guesses without a simulator);
- whether runs fit: fit_probabilities.py; measurements in doubt: doubtful.py; all as text: tables.py.
"""
