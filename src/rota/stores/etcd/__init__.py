"""The store for many machines on etcd, with its history in the blobs."""

from rota.stores.etcd.store import EtcdStore

__all__ = ["EtcdStore"]
