"""A session on a screen: owned by this process, or followed read-only while another process owns it."""

from chatops.runtime.reading import ReadAlong
from chatops.runtime.session import ChatSession

Conversation = ChatSession | ReadAlong
