"""The account's own storage on the nodes: mounted containers, and resource files of auto-storage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

from batchtrain.emulator.interface import Download, NodeSpec, NodeUnfit, StorageAccount, StorageMissing
from batchtrain.emulator.machine.azurite import Azurite
from batchtrain.emulator.machine.mounted_containers import EVERY_SECONDS, MountedContainer
from batchtrain.emulator.machine.resource_files import DownloadError
from batchtrain.emulator.machine.storage_links import container_url


class OwnStorage:
    """Starts the storage at its first use, and synchronizes the directories of mounted containers with it."""

    def __init__(self, data_dir: Path, living: Callable[[], Collection[NodeSpec]]) -> None:
        """living: the nodes that are up."""
        self._data_dir, self._living = data_dir, living
        self._azurite = Azurite(data_dir)
        self.main: Callable[[], StorageAccount] | None = None
        """Asks for the storage of the emulator's first account, which all its accounts share."""
        self._mounted: dict[str, MountedContainer] = {}
        self._copying: asyncio.Task[None] | None = None

    async def account(self) -> StorageAccount:
        """The storage, installed and started if it is not running. Raises StorageMissing."""
        return await asyncio.to_thread(self.main or self._azurite.ensure)

    async def addressed(self, item: Download) -> Download:
        """A download whose address is whole. Raises DownloadError."""
        if not item.own:
            return item
        try:
            return item._replace(url=container_url(await self.account(), item.url), own=False)
        except StorageMissing as missing:
            raise DownloadError("BlobDownloadMiscError", str(missing)) from None

    # Mounted containers ----------------------------------------------------------------------------------------------

    async def mount(self, spec: NodeSpec) -> None:
        """Create the containers that a node mounts, and synchronize their directories. Raises NodeUnfit."""
        for mount in spec.mounts:
            if mount.container:
                name = mount.container
                try:
                    mounted_container = self._mounted.get(name) or MountedContainer(
                        self._data_dir, mount.directory, name
                    )
                    await asyncio.to_thread(mounted_container.create, await self.account())  # it may be deleted since
                except (StorageMissing, OSError) as error:
                    message = f"the container {name} cannot be mounted: {error}"
                    raise NodeUnfit("MountConfigurationException", message) from None
                self._mounted[name] = mounted_container
        if any(mount.container for mount in spec.mounts) and self._copying is None:
            self._copying = asyncio.create_task(self._copy_now_and_then())

    async def copy(self, spec: NodeSpec) -> None:
        """Synchronize the directories that a node mounts with their containers."""
        names = {mount.container for mount in spec.mounts if mount.container}
        if names:
            with contextlib.suppress(StorageMissing):  # the log says so
                account = await self.account()
                await asyncio.gather(*(asyncio.to_thread(self._mounted[name].copy, account) for name in sorted(names)))

    async def _copy_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self._copy_all(self._living())

    async def _copy_all(self, specs: Collection[NodeSpec]) -> None:
        """Each container once, even if many nodes mount it."""
        for mounts in {tuple(mount for mount in spec.mounts if mount.container) for spec in specs}:
            await self.copy(NodeSpec("", "", "", "", "", mounts=mounts))

    async def close(self, specs: Collection[NodeSpec]) -> None:
        """Copy the files of the last commands, and stop the storage. specs: the nodes that were up."""
        if self._copying is not None:
            self._copying.cancel()
        await self._copy_all(specs)
        await asyncio.to_thread(self._azurite.close)
