"""Spawners: what starts more workers, and agents that claim their work, when there is work that nobody could have."""

from rota.worker.spawners.agents import AgentSpawner
from rota.worker.spawners.processes import Surroundings
from rota.worker.spawners.workers import WorkerSpawner

__all__ = ["AgentSpawner", "Surroundings", "WorkerSpawner"]
