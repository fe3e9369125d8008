"""Bundles at the desk: kept for their tenant after everything in them was looked at, and found by their digest."""

import asyncio
from hashlib import sha256

from rota.core.commands import ClientCommand, DeployWorkflow, PutSchedule, SubmitRun
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.ports import BlobLost, Blobs
from rota.wire.bundles import bundle_name, check_bundle, check_ref
from rota.wire.requests import FindBundle, PutBundle

# Each may take as much memory as a bundle has bytes, and a processor while it is looked at.
AT_ONCE = 2


class Bundles:
    """The bundles of a coordinator's tenants."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._room = asyncio.Semaphore(AT_ONCE)

    async def put(self, request: PutBundle) -> BlobRef:
        """Keep one. Raises Refused if it is not what its digest says, or cannot be unpacked safely."""
        name = bundle_name(request.tenant, request.sha256)
        async with self._room:
            found = await asyncio.to_thread(lambda: sha256(request.content).hexdigest())
            if found != request.sha256:
                text = f"this bundle's SHA-256 is {found}, and it was sent as {request.sha256}"
                raise Refused("bundle.digest", text, "Send it again.", path="sha256")
            await asyncio.to_thread(check_bundle, request.content)
            return await self._blobs.put(name, request.content)

    async def find(self, request: FindBundle) -> BlobRef | None:
        """One that is there whole. Of one that was damaged it is said that it has to be put, which mends it."""
        ref = BlobRef(bundle_name(request.tenant, request.sha256), request.size, request.sha256)
        check_ref(request.tenant, ref)
        async with self._room:
            try:
                # Stored again, and so young again: what nobody refers to is removed when it is old, and it may be that
                # nobody does until what it was asked for is deployed.
                return await self._blobs.put(ref.name, await self._blobs.get(ref))
            except BlobLost:
                return None

    async def check(self, command: ClientCommand) -> None:
        """Refuse a definition whose workers would not find their code."""
        graph = command.graph if isinstance(command, SubmitRun | DeployWorkflow | PutSchedule) else None
        if graph is None or graph.bundle is None:
            return
        ref = graph.bundle
        check_ref(command.tenant, ref)
        try:
            # Its end is looked at and not all of it: a folder may have a thousand workflows with the same bundle.
            end = await self._blobs.read(ref.name, ref.size - 1, 2)
        except BlobLost:
            end = b""
        if len(end) != 1:
            text = f"the bundle {ref.sha256[:12]} of {graph.name!r} is not there"
            raise Refused("bundle.unknown", text, "Put it first.", path="graph.bundle")
