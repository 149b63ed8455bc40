"""The scenario file: its language, its checks, its errors. Knows no kernels, no collectives and no clock.

Read models.py (what a scenario is) and blocks.py (its fields) first. By subject:

- from a file to a Scenario: load.py, documents.py, yaml_source.py, tree.py, files_beside.py, aliases.py,
  presets.py, own_hardware.py, precision_change.py, what_follows.py (defaults that depend on other fields),
  build.py, read_from.py, checked.py;
- what must hold between fields: consistency.py (in which order), checks.py, checks_pipeline.py,
  checks_software.py, checks_recompute.py, checks_power.py, checks_faults.py, checks_neighbours.py,
  checks_other_gpus.py, finding.py;
- messages: errors.py, explain.py, refusal.py;
- blocks with rules of their own: recompute.py, routing.py, loss_scale.py, optimizers.py, neighbours.py,
  other_gpus.py, variation.py, price.py, fault_blocks.py (weeks);
- what several fields mean together: sharding.py, schedules.py, pipeline_shape.py, table_files.py,
  chunk_layers.py, machine.py, machine_file.py, frameworks.py;
- the language described: schema.py, editor_schema.py, field_words.py, page.py.
"""
