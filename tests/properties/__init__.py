"""What must hold for every policy: the engine against the oracle, on random policies."""
