"""Pages for people: what runs, what waits and why, and what happened.

Each page is rendered here from what the client of `rota.client` reads, and kept current by fragments of itself over
server-sent events. Nothing here knows of tokens, cookies or ports: whoever puts a service together brings visits.
"""
