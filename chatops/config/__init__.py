"""Read files and the environment into frozen policy values."""
