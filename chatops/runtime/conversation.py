"""A conversation on a screen: driven from here, or read along with while another process drives it."""

from chatops.runtime.reading import ReadAlong
from chatops.runtime.session import ChatSession

Conversation = ChatSession | ReadAlong
