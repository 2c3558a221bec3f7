"""chatops in editors: sessions, roles and approvals over the Agent Client Protocol, on standard input and output."""
