"""Work for agents over the Model Context Protocol: one process is one session, and its tools speak of items.

Needs the extra `agent`; nothing else imports this.
"""
