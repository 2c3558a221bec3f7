"""What command lines do, by their text alone: grammar, programs, effects. Nothing here knows a chat."""
