"""Run the engine against the world: commit steps, publish events, perform effects."""
