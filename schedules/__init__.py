"""Who does what in which order: pipeline schedules and collective algorithms.

Knows neither seconds nor bytes, and nothing else of this package.
"""
