"""What a prediction rests on, and how sure it is: assumptions, coverage, intervals, notes."""
