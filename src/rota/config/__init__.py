"""Settings: a file and the environment become one frozen `Config` that remembers where each value came from."""

from rota.config.addresses import Address, Target, read_address, read_target
from rota.config.definitions import commands_for
from rota.config.reading import load_config
from rota.config.schedulers import check_backends
from rota.config.secret import Secret, fingerprint
from rota.config.settings import SETTINGS, Config, Setting, limits_for
from rota.config.tls import ClientTls, ServerTls, read_client_tls, read_server_tls, server_context

__all__ = [
    "SETTINGS",
    "Address",
    "ClientTls",
    "Config",
    "Secret",
    "ServerTls",
    "Setting",
    "Target",
    "check_backends",
    "commands_for",
    "fingerprint",
    "limits_for",
    "load_config",
    "read_address",
    "read_client_tls",
    "read_server_tls",
    "read_target",
    "server_context",
]
