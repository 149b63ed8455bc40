"""Pipeline schedules and collective algorithms: which rank does what in which order.

Knows neither seconds nor bytes, and nothing else of this package.
"""
