"""Many replications of a campaign, and what they say: means with intervals, variants, optima, sweeps."""
