"""Measured runs: case files, the scenario that each means, its prediction, and errors by family.

Read case.py first (the fixed schema of the files), then to_scenario.py.

- from a case to a scenario: to_scenario.py, preset.py, framework_text.py, recipes.py, model_facts.py,
  unstated.py (facts that no source states);
- a user's own runs: own_run.py;
- constants that steps are tried with: constants.py, trial.py, halves.py (fitted on a part of the runs);
- as if less were known: gpu_left_out.py, unread_trainer.py;
- groups of runs and their errors: sweep.py, errors.py.
"""
