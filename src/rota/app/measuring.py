"""Metrics of a front end, over HTTP. Loaded only where they are wanted: a front end has to start quickly."""

from contextlib import AsyncExitStack

from rota.api.http.server import HttpServer
from rota.api.reapi.desks import Desks
from rota.api.reapi.probes import FrontEndProbes
from rota.api.reapi.results import Results
from rota.api.reapi.server import ReapiServer
from rota.api.reapi.telemetry import FrontEndTelemetry
from rota.api.tokens import Gate
from rota.config import Address, Config, server_context
from rota.ports import Content
from rota.wire.metrics import Calls


class Measuring:
    """Counts calls from the beginning, and shows everything once there is something to look at."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.calls = Calls()

    async def show(
        self,
        parts: AsyncExitStack,
        config: Config,
        gate: Gate,
        server: ReapiServer,
        *,
        desks: Desks,
        results: Results,
        content: Content,
    ) -> str:
        """Begin to listen; the answer is where. `parts` stops it."""
        telemetry = FrontEndTelemetry(self.calls, server.traffic, desks, results, content)
        probes = FrontEndProbes(gate, telemetry, (self.address.host,))
        http = HttpServer(probes, self.address.host, self.address.port, server_context(config.tls))
        port = await http.start()
        parts.push_async_callback(http.stop)
        return f"{'https' if config.tls.cert else 'http'}://{Address(self.address.host, port)}"
