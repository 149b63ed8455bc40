"""Folding: which ranks must do the same at the same time, so that one of them is replayed for all.

fold.py is the entry. ranks.py has what each rank runs and whom it meets; fabric.py, can_bind.py and
weak_links.py which links of the network matter; partition.py finds the classes by colour refinement
(refine.py, refine_from.py); programs.py and paths.py write the programs and links of classes. jobs.py folds
several jobs on one network. loads.py and lone_collective.py report on links and replay nothing.
"""
