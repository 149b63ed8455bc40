"""The command line: one file a command. It alone knows both the simulator and the calibration.

Read main.py first (how a process begins and ends) and commands.py (which commands there are). A command's
file loads what it runs inside its function, so that the help of all stays fast.

- one step: run.py, replay.py, compare.py, explain.py, memory.py, views.py (files of a result);
- layouts: plan.py, plan_options.py, sweep.py, sensitivity.py;
- weeks: faults.py, stragglers.py;
- parts: collective.py, collective_cases.py, own_collective.py, schedule.py, cluster.py, hardware.py;
- files of scenarios: init.py, import_files.py, export.py, schema.py, list.py, sources.py (what stands where a
  scenario is asked for);
- calibration: calibrate.py, calibrate_collectives.py with measure_collectives.py, calibrate_fit.py,
  calibrate_kernels.py, calibrate_layer.py, calibrate_own.py, calibrate_report.py, calibrate_residuals.py,
  collective_logs.py (logs of nccl-tests, for fits and validation);
- validation: validate.py, validate_collectives.py, validate_kernels.py, validate_tables.py;
- the page and the machine: serve.py, doctor.py;
- shared: options.py, output.py, progress.py, examples.py (of every command), mistakes.py and
  option_mistakes.py (a user's), refusals.py (files that cannot be used), exit_codes.py;
- a fast start: start.py, late_methods.py.
"""
