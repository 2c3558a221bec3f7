"""A turn as a pure state machine: `advance(state, input) -> Step`. Uses no clock, disk or socket."""
