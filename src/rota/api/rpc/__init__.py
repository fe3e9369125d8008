"""The way in over gRPC: clients talk on one stream each, workers sync on another."""

from rota.api.rpc.server import RpcServer

__all__ = ["RpcServer"]
