"""Bounded replay: a step with many slow parts, from few replicas of the pipeline and with both bounds."""
