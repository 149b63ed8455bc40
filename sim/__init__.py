"""The simulator proper: scenario, model, lowering, network, engine, reports, validation. Only here is a clock."""
