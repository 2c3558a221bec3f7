"""Parse command lines and tell their effects from the text alone. Imports nothing of the chat."""
