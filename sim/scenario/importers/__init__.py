"""Files of other frameworks as scenarios: one importer a file, found by its name, and the way back.

A module that ends in ``IMPORTER = Importer(...)`` is an importer, one that ends in ``EXPORTER =
Exporter(...)`` writes a framework's own file; the registry finds both. Read entry.py first (from files to a
scenario), importer.py (what an importer gets) and draft.py (what it fills in); torchtune.py is a short one.

- from files to settings: entry.py, sources.py, source_kinds.py, settings.py, plain_names.py, arguments.py,
  hydra.py, leftovers.py (what nobody has read), registry.py;
- launch scripts, which are read and never executed: shell.py, shell_script.py, shell_words.py,
  shell_expand.py, shell_conditions.py, shell_yq.py, launchers.py;
- facts that several importers need: cluster_facts.py, model_facts.py, vocabulary.py, mpt_sizes.py,
  layer_checkpoints.py, cuda_graphs.py, liger.py;
- Megatron-LM: megatron_lm.py, megatron_version.py, megatron_model.py, megatron_layout.py,
  megatron_precision.py, megatron_recompute.py, megatron_software.py, router_loss.py; the way back in
  megatron_lm_export.py and megatron_lm_export_software.py;
- on Megatron core: megatron_bridge.py, megatron_bridge_export.py, recipes.py and recipe_run.py (performance
  recipes), nemo.py, gpt_neox.py, ms_swift_megatron.py, primus.py;
- DeepSpeed and transformers' Trainer: deepspeed.py, deepspeed_json.py, deepspeed_export.py, trainer.py,
  trainer_run.py, trainer_export.py, accelerate.py, axolotl.py, ms_swift.py;
- PyTorch and JAX: torchtitan.py, torchtitan_layout.py, torchtitan_software.py, torchtitan_export.py,
  torchtune.py, llm_foundry.py, olmo.py, nanotron.py, nanotron_export.py, maxtext.py, maxtext_model.py;
- all ways back: export.py.
"""
