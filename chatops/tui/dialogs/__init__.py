"""Dialogs over the chat screen: approval, review, questions, pickers, texts."""
