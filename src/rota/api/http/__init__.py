"""HTTP: `/api/v1`, its event streams, its description, and the probes. One table of endpoints is the source of all."""
