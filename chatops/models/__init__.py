"""Model providers: adapters behind one protocol, and the bytes that they send and receive."""
