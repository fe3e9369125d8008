"""Where the outputs of other stages are that an attempt reads: on this disk, or at a peer."""

import msgspec

from rota.config.addresses import Address
from rota.core.decide.leases import Input, Offer
from rota.core.ids import TaskId
from rota.wire.queries import Exchange, StageOutput, decode_output
from rota.worker.runners.queries.exchange import Exchanges, Foreign, folder_name, machine
from rota.worker.runners.queries.orders import Peer, Source
from rota.worker.runners.queries.serving import Tickets


class Unfit(Exception):
    """A fragment that no worker like this one can run, however often it tries."""


class Lost(Exception):
    """Outputs of other stages that are not there."""

    def __init__(self, producers: tuple[str, ...], why: str) -> None:
        super().__init__(why)
        self.producers = producers


class Sources:
    """Where the outputs of other stages are, for one attempt."""

    def __init__(self, offer: Offer, exchanges: Exchanges, tickets: Tickets) -> None:
        self._offer = offer
        self._exchanges = exchanges
        self._tickets = tickets
        self._peers: dict[str, int] = {}

    def resolve(self, exchanges: tuple[Exchange, ...]) -> tuple[tuple[tuple[Source, ...], ...], tuple[Peer, ...]]:
        """For each exchange what the tasks of its stage have written, and the peers that have some of it."""
        inputs = {given.task: given for given in self._offer.inputs}
        found: list[tuple[Source, ...]] = []
        for exchange in exchanges:
            given = inputs.get(TaskId(exchange.stage))
            if given is None:
                raise Unfit(f"query.failed: stage {exchange.stage!r} is not among its inputs")
            found.append(tuple(self._written(given, number) for number in range(len(given.results))))
        ticket = ""
        if self._peers:
            ticket = self._tickets.make(folder_name(self._offer.tenant), folder_name(self._offer.run))
        return tuple(found), tuple(Peer(url, ticket) for url in self._peers)

    def _written(self, given: Input, number: int) -> Source:
        producer = f"{given.task}[{number}]" if given.is_group else given.task
        result = given.results[number]
        if result is None:
            raise Lost((producer,), f"{producer} has left no output")
        try:
            output = decode_output(result)
        except msgspec.MsgspecError as error:
            raise Unfit(f"query.failed: what {producer} gave is no output of a stage: {error}") from None
        folder = self._exchanges.locate(self._offer, output)
        if folder is not None or not output.parts:
            return Source(producer, folder or "", output.parts, told=output.told)
        _check_reachable(producer, output)
        peer = self._peers.setdefault(output.url, len(self._peers))
        return Source(producer, output.folder, output.parts, peer, output.told)


def _check_reachable(producer: str, output: StageOutput) -> None:
    """Refuse what trying again would not reach."""
    if not output.url:
        raise Foreign(
            f"query.failed: {producer} wrote to a folder that is not this worker's: "
            "set worker.exchange_folder to the same shared folder on all workers, or on none"
        )
    host = output.url.partition("://")[2].rpartition(":")[0].strip("[]")
    if not output.url.startswith(("http://", "https://")):
        raise Foreign(f"{producer} is said to be at {output.url!r}, which is no worker")
    if Address(host, 0).is_loopback and output.root.partition("-")[0] != machine():
        raise Foreign(
            f"query.failed: {producer} ran on another machine, whose worker listens on {host} only: "
            "set worker.exchange_listen to an address that the others reach, or share worker.exchange_folder"
        )
