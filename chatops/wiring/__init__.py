"""The composition root: the only place that names concrete classes; and what a screen shows of the workspace."""
