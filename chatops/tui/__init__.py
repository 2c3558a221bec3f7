"""The terminal UI: screens translate keys, the projector turns events into blocks, widgets draw."""
