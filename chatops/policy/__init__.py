"""Access control: pure rules over the values of `domain`. Layers can only narrow."""
