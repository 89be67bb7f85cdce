"""VM images for the nodes of Batch: their node agent, their contents, and the end of their support.

The service knows what one account can use today (`GET /supportedimages`); these tables are for offline use.
Sources: Azure/azhpc-images README (July 2026); Azure/Batch issues 106, 119, 152, 169, 174, 178, 180, 197 and 200
(the ends of support); Batch Shipyard's platform image table (the old images).
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

DOCKER, RDMA, NVIDIA, ROCM, INTELMPI, GEN2 = "docker", "rdma", "nvidia", "rocm", "intelmpi", "gen2"
VOLTA = "volta"
"""In addition to `nvidia`: the driver still supports GPUs older than Turing. Azure has separate images for V100."""

# The names in `capabilities` of GET /supportedimages, which has none for ROCm and Volta.
SERVICE_WORDS = {
    DOCKER: "DockerCompatible",
    RDMA: "SupportsRDMAOnly",
    NVIDIA: "NvidiaTeslaDriverInstalled",
    INTELMPI: "IntelMPIRuntimeInstalled",
    GEN2: "Generation2VMImage",
}


PACKAGE_MANAGERS: dict[str, tuple[str, ...]] = {
    "ubuntu": ("apt-get", "apt"), "debian": ("apt-get", "apt"),
    "centos": ("yum", "dnf"), "el": ("dnf", "yum"), "rhel": ("dnf", "yum"), "almalinux": ("dnf", "yum"),
    "opensuse": ("zypper",), "sles": ("zypper",), "azurelinux": ("tdnf", "dnf"), "mariner": ("tdnf", "dnf"),
}  # fmt: skip
"""The commands that install packages, the usual one first, by the system in the name of the node agent."""


def package_managers(node_agent: str) -> tuple[str, ...]:
    """Those of the images with a node agent, such as `batch.node.ubuntu 24.04`; none if they are unknown."""
    return PACKAGE_MANAGERS.get(node_agent.lower().removeprefix("batch.node.").partition(" ")[0], ())


class Image(NamedTuple):
    """One marketplace image, or a row of them."""

    publisher: str
    offer: str
    sku: str
    """The exact SKU in SUPPORTED; a pattern with * (`7.*`) in RETIRED."""
    node_agent: str
    """The node agent SKU id that a pool must name with the image; empty if no public source states it."""
    os: str = "linux"
    """linux or windows."""
    capabilities: frozenset[str] = frozenset()
    retired: date | None = None
    """The last day of Batch's support, as far as announced."""
    replacement: str = ""
    """publisher:offer:sku to use instead."""


class Reference(NamedTuple):
    """Publisher, offer and sku, as in `imageReference`."""

    publisher: str
    offer: str
    sku: str


UBUNTU_HPC = "microsoft-dsvm:ubuntu-hpc:2404"
UBUNTU = "canonical:ubuntu-24_04-lts:server"
ALMA = "almalinux:almalinux-x86_64:9-gen2"
WINDOWS = "microsoftwindowsserver:windowsserver:2022-datacenter"
HPC = frozenset({DOCKER, RDMA, NVIDIA, GEN2})
HPC_VOLTA = HPC | {VOLTA}
HPC_AMD = frozenset({DOCKER, RDMA, ROCM, GEN2})
GEN2_ONLY = frozenset({GEN2})
JAMMY, WINDOWS_2016 = date(2027, 6, 30), date(2027, 1, 12)

# Offered late in 2026. `SupportsRDMAOnly` of an HPC image does not keep it from sizes without RDMA: ubuntu-hpc on D and
# NC sizes is ordinary use. Generation 2 images do not start on sizes that support only generation 1 (NC24r, H16r).
SUPPORTED: tuple[Image, ...] = (
    Image("microsoft-dsvm", "ubuntu-hpc", "2404", "batch.node.ubuntu 24.04", "linux", HPC),
    Image("microsoft-dsvm", "ubuntu-hpc", "2404-rocm", "batch.node.ubuntu 24.04", "linux", HPC_AMD),
    Image("microsoft-dsvm", "ubuntu-hpc", "2204", "batch.node.ubuntu 22.04", "linux", HPC, JAMMY, UBUNTU_HPC),
    Image("microsoft-dsvm", "ubuntu-hpc", "2204-v100", "batch.node.ubuntu 22.04", "linux", HPC_VOLTA, JAMMY,
          "almalinux:almalinux-hpc:8_10-hpc-v100-gen2"),
    Image("microsoft-dsvm", "ubuntu-hpc", "2204-rocm", "batch.node.ubuntu 22.04", "linux", HPC_AMD, JAMMY,
          "microsoft-dsvm:ubuntu-hpc:2404-rocm"),
    Image("almalinux", "almalinux-hpc", "8_10-hpc-gen2", "batch.node.el 8", "linux", HPC),
    Image("almalinux", "almalinux-hpc", "8_10-hpc-v100-gen2", "batch.node.el 8", "linux", HPC_VOLTA),
    Image("almalinux", "almalinux-hpc", "9-hpc-gen2", "batch.node.el 9", "linux", HPC),
    Image("almalinux", "almalinux-x86_64", "8-gen2", "batch.node.el 8", "linux", GEN2_ONLY),
    Image("almalinux", "almalinux-x86_64", "9-gen2", "batch.node.el 9", "linux", GEN2_ONLY),
    Image("canonical", "0001-com-ubuntu-server-jammy", "22_04-lts", "batch.node.ubuntu 22.04", "linux", frozenset(),
          JAMMY, UBUNTU),
    Image("canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2", "batch.node.ubuntu 22.04", "linux",
          GEN2_ONLY, JAMMY, UBUNTU),
    Image("canonical", "ubuntu-24_04-lts", "server", "batch.node.ubuntu 24.04", "linux", GEN2_ONLY),
    Image("canonical", "ubuntu-24_04-lts", "server-gen1", "batch.node.ubuntu 24.04", "linux", frozenset()),
    Image("microsoftwindowsserver", "windowsserver", "2016-datacenter", "batch.node.windows amd64", "windows",
          frozenset(), WINDOWS_2016, WINDOWS),
    Image("microsoftwindowsserver", "windowsserver", "2016-datacenter-with-containers", "batch.node.windows amd64",
          "windows", frozenset({DOCKER}), WINDOWS_2016, WINDOWS),
    Image("microsoftwindowsserver", "windowsserver", "2016-datacenter-with-containers-smalldisk",
          "batch.node.windows amd64", "windows", frozenset({DOCKER}), WINDOWS_2016, WINDOWS),
    Image("microsoftwindowsserver", "windowsserver", "2019-datacenter", "batch.node.windows amd64", "windows"),
    Image("microsoftwindowsserver", "windowsserver", "2019-datacenter-with-containers", "batch.node.windows amd64",
          "windows", frozenset({DOCKER})),
    Image("microsoftwindowsserver", "windowsserver", "2019-datacenter-with-containers-smalldisk",
          "batch.node.windows amd64", "windows", frozenset({DOCKER})),
    Image("microsoftwindowsserver", "windowsserver", "2022-datacenter", "batch.node.windows amd64", "windows"),
)  # fmt: skip

# Batch has an agent for Azure Linux 3 since 1.12.15 (Azure/Batch issue 188); no public page gives its name.
AGENT_UNNAMED: tuple[Image, ...] = (
    Image("azure-hpc", "azurelinux-hpc", "3", "", "linux", HPC),
    Image("azure-hpc", "azurelinux-hpc", "3-fips", "", "linux", HPC),
    Image("azure-hpc", "azurelinux-hpc", "3-v100", "", "linux", HPC_VOLTA),
    Image("azure-hpc", "azurelinux-hpc", "3-v100-fips", "", "linux", HPC_VOLTA),
)  # fmt: skip
NO_ARM64 = "Azure publishes no HPC image for arm64, and no document names a node agent for it"
"""azhpc-images (July 2026): the README lists images of the marketplace for x64 alone; packer/variables.pkr.hcl builds
arm64 for GB200 and GB300 from `ubuntu-24_04-lts:server-arm64` and Azure Linux 3, into a gallery."""

# Images in users' old files. The end of a node agent ends every image of it; 31 December 2024 is the day pools of the
# agents that had already lost support were scaled to zero (Azure/Batch issue 180).
XENIAL, BIONIC, FOCAL = date(2021, 5, 21), date(2023, 5, 30), date(2025, 4, 23)
CENTOS_7, CENTOS_8, CUT_OFF = date(2024, 6, 30), date(2021, 12, 31), date(2024, 12, 31)
SEMI_ANNUAL = date(2022, 8, 9)
RDMA_INTEL = frozenset({RDMA, INTELMPI})
CONTAINER_GPU = frozenset({DOCKER, NVIDIA, VOLTA})
CONTAINER_RDMA = frozenset({DOCKER, RDMA, NVIDIA, VOLTA})
RETIRED: tuple[Image, ...] = (
    Image("openlogic", "centos-hpc", "7.*", "batch.node.centos 7", "linux", RDMA_INTEL, CENTOS_7, UBUNTU_HPC),
    Image("openlogic", "centos-hpc", "8*", "batch.node.centos 8", "linux", frozenset({RDMA}), CENTOS_8, UBUNTU_HPC),
    Image("openlogic", "centos", "7*", "batch.node.centos 7", "linux", frozenset(), CENTOS_7, ALMA),
    Image("openlogic", "centos", "8*", "batch.node.centos 8", "linux", frozenset(), CENTOS_8, ALMA),
    Image("canonical", "ubuntuserver", "14.04*", "batch.node.ubuntu 14.04", "linux", frozenset(), CUT_OFF, UBUNTU),
    Image("canonical", "ubuntuserver", "16.04*", "batch.node.ubuntu 16.04", "linux", frozenset(), XENIAL, UBUNTU),
    Image("canonical", "ubuntuserver", "18.04*", "batch.node.ubuntu 18.04", "linux", frozenset(), BIONIC, UBUNTU),
    Image("canonical", "0001-com-ubuntu-server-focal", "20_04*", "batch.node.ubuntu 20.04", "linux", frozenset(),
          FOCAL, UBUNTU),
    Image("microsoft-dsvm", "ubuntu-hpc", "1804", "batch.node.ubuntu 18.04", "linux", HPC_VOLTA, BIONIC, UBUNTU_HPC),
    Image("microsoft-dsvm", "ubuntu-hpc", "2004", "batch.node.ubuntu 20.04", "linux", HPC_VOLTA, FOCAL, UBUNTU_HPC),
    Image("microsoft-azure-batch", "ubuntu-server-container", "16-04*", "batch.node.ubuntu 16.04", "linux",
          CONTAINER_GPU, XENIAL, UBUNTU_HPC),
    Image("microsoft-azure-batch", "ubuntu-server-container-rdma", "16-04*", "batch.node.ubuntu 16.04", "linux",
          CONTAINER_RDMA, XENIAL, UBUNTU_HPC),
    Image("microsoft-azure-batch", "ubuntu-server-container", "20-04*", "batch.node.ubuntu 20.04", "linux",
          CONTAINER_GPU, FOCAL, UBUNTU_HPC),
    Image("microsoft-azure-batch", "ubuntu-server-container-rdma", "20-04*", "batch.node.ubuntu 20.04", "linux",
          CONTAINER_RDMA, FOCAL, UBUNTU_HPC),
    Image("microsoft-azure-batch", "centos-container", "7*", "batch.node.centos 7", "linux", CONTAINER_GPU, CENTOS_7,
          UBUNTU_HPC),
    Image("microsoft-azure-batch", "centos-container-rdma", "7*", "batch.node.centos 7", "linux", CONTAINER_RDMA,
          CENTOS_7, UBUNTU_HPC),
    Image("credativ", "debian", "8*", "batch.node.debian 8", "linux", frozenset(), CUT_OFF, UBUNTU),
    Image("credativ", "debian", "9*", "batch.node.debian 9", "linux", frozenset(), CUT_OFF, UBUNTU),
    Image("debian", "debian-10", "10*", "batch.node.debian 10", "linux", frozenset(), CUT_OFF, UBUNTU),
    Image("microsoftwindowsserver", "windowsserversemiannual", "*", "batch.node.windows amd64", "windows",
          frozenset({DOCKER}), SEMI_ANNUAL, WINDOWS),
)  # fmt: skip

# Rows that only answer what an image is: neither listed nor suggested. From memory, except the agent of Mariner.
_WINDOWS_AGENT, _CONTAINERS = "batch.node.windows amd64", frozenset({DOCKER})
UNLISTED: tuple[Image, ...] = (
    Image("microsoftwindowsserver", "windowsserver", "20??-datacenter*containers*", _WINDOWS_AGENT, "windows",
          _CONTAINERS),
    Image("microsoftwindowsserver", "windowsserver", "20??-datacenter*", _WINDOWS_AGENT, "windows"),
    Image("debian", "debian-11", "11*", "batch.node.debian 11"),
    Image("debian", "debian-12", "12*", "batch.node.debian 12"),
    Image("microsoftcblmariner", "cbl-mariner", "*", "batch.node.mariner 2.0"),
)  # fmt: skip

IMAGES = (*SUPPORTED, *AGENT_UNNAMED, *RETIRED)
EVERY = (*IMAGES, *UNLISTED)


def find(publisher: str, offer: str, sku: str, among: Iterable[Image] = EVERY) -> Image | None:
    """The image of that reference, ignoring case. Returns None if these tables do not have it."""
    name = (publisher.lower(), offer.lower())
    return next((image for image in among if image[:2] == name and fnmatch.fnmatchcase(sku.lower(), image.sku)), None)


def nearest(reference: str, among: Iterable[Image] = IMAGES) -> tuple[str, ...]:
    """At most three `publisher:offer:sku` similar to `reference`, the nearest first."""
    references = [":".join(image[:3]) for image in among]
    return tuple(difflib.get_close_matches(reference.strip().lower(), references, n=3, cutoff=0.6))


def service_words(capabilities: Iterable[str]) -> tuple[str, ...]:
    """The capabilities as GET /supportedimages spells them, sorted."""
    return tuple(sorted(SERVICE_WORDS[word] for word in capabilities if word in SERVICE_WORDS))
