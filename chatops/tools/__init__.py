"""Tools: the protocol that they implement, how calls are inspected, and the built-in tools."""
