"""The simulator proper: scenario, model, lowering, network, engine, reports, validation. Has the clock."""
