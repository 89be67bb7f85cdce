"""How each communication library takes InfiniBand, or tcp over Ethernet: one table. `docs/reference/transports.md` is
generated from it.

A library alone does not mean tcp on a size without InfiniBand, because the Ethernet card of Azure is an RDMA device,
too (mlx5_an0, mana_0). A value with `$` is known on the node: the active ports and the key of the partition. The source
of each choice is that of its rule in `launchers.rules`.
"""

from __future__ import annotations

from batchtrain.frameworks.base import Variable

INTERFACE = "eth0"
"""The interface of the pool's own network; a choice with this value is left out on a node without it."""
MCA = "--mca "
"""The beginning of the name of a parameter of Open MPI, which its launcher takes as an option."""
_OF_PML = ("--mca pml", "--mca btl", "--mca mtl")
"""Each of them decides how Open MPI communicates; with one of the user's, ours would contradict it."""

# --- UCX ------------------------------------------------------------------------------------------------------------

UCX_INFINIBAND = (
    Variable("UCX_NET_DEVICES", "$bt_ucx_ports", "UCX would also use the card of the accelerated Ethernet",
             "ucx-cards"),
    Variable("UCX_IB_PKEY", "$bt_pkey", "the partition that the nodes share, where it is not the default one",
             "ucx-cards"),
)  # fmt: skip
UCX_TCP = (
    Variable("UCX_TLS", "tcp,self,sm", "UCX would take any RDMA device; the Ethernet card is one, but UCX fails on it",
             "ucx-tcp"),
    Variable("UCX_NET_DEVICES", INTERFACE, "UCX would also use the bridges of container engines", "ucx-tcp",
             rivals=("UCX_TLS",)),
)  # fmt: skip
UCX_NAMES = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_IB_PKEY")
UCX_GPU_MEMORY = {"nvidia": "cuda", "amd": "rocm"}
"""The transports without which UCX takes GPU memory for that of the node."""

# --- libfabric, and Intel MPI on it -----------------------------------------------------------------------------------

_PROVIDERS = ("I_MPI_OFI_PROVIDER",)
LIBFABRIC_TCP = (
    Variable("FI_PROVIDER", "tcp", "libfabric would take any RDMA device, and the Ethernet card is one",
             "libfabric-tcp"),
    Variable("FI_TCP_IFACE", INTERFACE, "libfabric would also use the bridges of container engines",
             "libfabric-tcp"),
)  # fmt: skip
INTELMPI_TCP = (LIBFABRIC_TCP[0]._replace(rivals=_PROVIDERS), LIBFABRIC_TCP[1])
INTELMPI_INFINIBAND = (
    Variable("I_MPI_FABRICS", "shm:ofi", "shared memory in a node, libfabric between nodes", "mpi-fabric"),
    # The provider mlx is libfabric's interface to UCX. It fails if it cannot work. Intel MPI removed I_MPI_FALLBACK in
    # 2019, before it added mlx; a newer one warns about the variable on every start.
    Variable("FI_PROVIDER", "mlx", "libfabric's interface to UCX", "mpi-fabric", rivals=_PROVIDERS),
)
_INTELMPI_OLD = (
    Variable("I_MPI_FALLBACK", "0", "Intel MPI up to 2018 would fall back to tcp in silence", "mpi-fabric"),
    Variable(
        "MANPATH",
        "/usr/share/man:/usr/local/man",
        "mpivars.sh of that time fails without one",
        "mpi-fabric",
        keeps=True,
    ),
)
INTELMPI_OFA = (
    *_INTELMPI_OLD,
    Variable("I_MPI_FABRICS", "shm:ofa", "shared memory in a node, verbs between nodes", "mpi-fabric"),
    Variable("FI_PROVIDER", "mlx", "for an Intel MPI without ofa", "mpi-fabric", rivals=_PROVIDERS),
)
INTELMPI_OFA_TCP = (
    Variable("I_MPI_FABRICS", "shm:tcp", "Intel MPI up to 2018 would try dapl and ofa first", "intelmpi-tcp"),
    *INTELMPI_TCP,
)
INTELMPI_DAPL = (
    *_INTELMPI_OLD,
    Variable("I_MPI_FABRICS", "shm:dapl", "shared memory in a node, DAPL between nodes", "mpi-fabric"),
    Variable("I_MPI_DAPL_PROVIDER", "ofa-v2-ib0", "the card of Network Direct", "mpi-fabric"),
    Variable("I_MPI_DYNAMIC_CONNECTION", "0", "Batch Shipyard's setting for DAPL", "mpi-fabric"),
    Variable("I_MPI_DAPL_TRANSLATION_CACHE", "0", "Batch Shipyard's setting for DAPL", "mpi-fabric"),
)

# --- Open MPI -------------------------------------------------------------------------------------------------------

OPENMPI_INFINIBAND = (
    Variable("--mca pml", "ucx", "point-to-point messages go through UCX", "mpi-fabric", rivals=_OF_PML),
    Variable("--mca btl", "^vader,tcp,openib", "no other component may take InfiniBand or tcp", "mpi-fabric",
             rivals=_OF_PML),
)  # fmt: skip
HCOLL_OFF = Variable(
    "--mca coll_hcoll_enable",
    "0",
    "Azure's own launches on these sizes switch hcoll of HPC-X off",
    "openmpi-hcoll",
    rivals=("--mca coll",),
)
"""Not on all sizes: see `launchers.fabric`. An Open MPI without hcoll ignores it."""
OPENMPI_TCP = (
    Variable("--mca pml", "ob1", "the layer `ucx` would win: it prefers Mellanox cards, and the Ethernet card is one",
             "openmpi-tcp", rivals=_OF_PML),
    Variable("--mca btl", "^openib,uct,ofi", "the others take the Ethernet card as an RDMA device", "openmpi-tcp",
             rivals=_OF_PML),
    Variable("--mca coll", "^hcoll,ucc", "both look for InfiniBand by themselves", "openmpi-tcp",
             rivals=("--mca coll_hcoll_enable", "--mca coll_ucc_enable")),
)  # fmt: skip
OPENMPI_INTERFACE = (
    # btl_tcp_if_include and btl_tcp_if_exclude exclude each other.
    Variable("--mca btl_tcp_if_include", INTERFACE, "the nodes of a pool communicate over eth0", "openmpi-tcp",
             rivals=("--mca btl_tcp_if_exclude",)),
)  # fmt: skip

# --- NCCL and RCCL --------------------------------------------------------------------------------------------------

NCCL_NAMES = ("NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET_PLUGIN")
NCCL_TCP = (
    Variable("NCCL_NET", "Socket", "NCCL would take any RDMA device, and the Ethernet card is one", "nccl-tcp",
             rivals=NCCL_NAMES),
    Variable("NCCL_IB_DISABLE", "1", "NCCL before 2.10 does not know NCCL_NET", "nccl-tcp", rivals=NCCL_NAMES),
)  # fmt: skip
