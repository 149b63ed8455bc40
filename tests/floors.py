"""The floors of the house, from the top down: which folder may import which."""

from __future__ import annotations

FLOORS = """
cli
page
api
calibration.explain
calibration.validation
calibration.fit
calibration.cases
calibration.measure
calibration.readers
sim.report
sim.plan
sim.reliability
sim.brief
sim.simulate  sim.chakra
sim.replay
sim.degraded_step
sim.degraded_replay
sim.step_run
sim.neighbours  sim.balance
sim.step_result
sim.read_record
sim.evidence
sim.degradation
sim.bounded
sim.engine
sim.fold
sim.lowering
sim.estimate
sim.program
sim.result
sim.children  sim.defects  sim.figures  sim.what_if
sim.scenario.importers
sim.scenario
sim.network
kernels  schedules
hardware
scenarios
"""
"""From the top down, as docs/architecture.md draws them: a folder imports folders of lower lines alone.
scenarios holds data only."""
