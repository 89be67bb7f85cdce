"""The rules for implicit settings: each with its source, and how to switch it off.

Every `Implicit` of a plan names one of them. A test fails if a rule has no source or is not used.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.frameworks import FRAMEWORKS


class ImplicitRule(NamedTuple):
    """One rule. source: a document, a field of the SDK, or a measurement and its place."""

    id: str
    sentence: str
    source: str
    off: str
    """How to switch it off; empty if nothing else could work."""


# fmt: off
_RULES = (
    ImplicitRule("native-containers",
        "A pool with container images is planned so that Batch itself runs the containers.",
        "Azure Batch: Use Azure Batch to run container workloads (batch-docker-container-workloads); ADR 5",
        "remove the images, or run the task on the host"),
    ImplicitRule("source-files",
        "Files of a `source` that .gitignore, .batchtrainignore or a default rule names are not sent.",
        "Git: gitignore; ADR 21", "write `!NAME` into the `.batchtrainignore` of the source"),
    ImplicitRule("infiniband-by-size",
        "A gang uses InfiniBand if its size has it and the pool has inter-node communication; otherwise it uses tcp. On"
        " an unknown size the image decides.",
        "Azure: Enable InfiniBand (HPC VM sizes); Batch Shipyard's rule for `infiniband`",
        "`infiniband: false` on the task or its job"),
    ImplicitRule("gpus-by-size", "A task on a GPU size sees all GPUs of its node, in a container too.",
        "Azure Batch node agent: GPUs are added to containers by the service; Batch Shipyard's rule for `gpus`",
        "`gpus: disable` on the task or its job"),
    ImplicitRule("mpi-fabric", "The launch selects the network of the MPI.",
        "Azure: Set up Message Passing Interface for HPC (setup-mpi); azhpc-images; Batch Shipyard's table of options",
        "`infiniband`, the same variable in environment_variables, or the same parameter in `mpi.options`"),
    ImplicitRule("openmpi-tcp", "Open MPI uses its own tcp on a gang without InfiniBand.",
        "Open MPI: common_ucx.c (opal_common_ucx_support_level: a mlx5 device lifts `ucx` above `ob1`), btl/tcp; azhpc-"
        "images: install_mpis.sh (openib, hcoll and ucc fail on MANA); ecmwf-ifs/ecland pull request 64",
        "`infiniband: true`, or one of the parameters in `mpi.options`"),
    ImplicitRule("openmpi-hcoll", "Open MPI does not use hcoll of HPC-X on sizes with H100, H200, GB200 and GB300.",
        "Azure/ai-infrastructure-on-azure: NCCL/configs/hopper.conf (OMPI_MCA_coll_hcoll_enable=0), and"
        " inferenceX/aks/helm (GB300: -mca coll_hcoll_enable 0)",
        "`--mca coll_hcoll_enable 1` in `mpi.options`"),
    ImplicitRule("intelmpi-tcp", "Intel MPI up to 2018 uses tcp on a gang without InfiniBand.",
        "Intel MPI 2018: I_MPI_FABRICS (shm:tcp)", "`I_MPI_FABRICS` in environment_variables"),
    ImplicitRule("libfabric-tcp", "libfabric uses its provider `tcp` on a gang without InfiniBand.",
        "libfabric: fabric(7), FI_PROVIDER; fi_tcp(7), FI_TCP_IFACE; azhpc-images: test-definitions.sh and"
        " install_mpis.sh (FI_PROVIDER=tcp); uxlfoundation/oneDAL pull request 3734; measured with Intel MPI 2021.18:"
        " it ends if I_MPI_OFI_PROVIDER is another one",
        "`infiniband: true`, `FI_PROVIDER` or `I_MPI_OFI_PROVIDER` in environment_variables"),
    ImplicitRule("ranks-on-nodes", "The launcher gets the nodes of the task and the number of ranks per node.",
        "Azure Batch: Environment variables (AZ_BATCH_HOST_LIST); mpiexec(1) of MPICH and Intel MPI: -hosts, -ppn;"
        " mpirun(1) of Open MPI: -host, --map-by ppr", "`-np` or `-n` in `mpi.options`, with hosts of your own"),
    ImplicitRule("primary-first", "The primary is the first of AZ_BATCH_HOST_LIST.",
        "Azure Batch: Use multi-instance tasks (files are taken from the primary; no order of the list is promised)",
        ""),
    ImplicitRule("gang-ssh", "The launch uses its own ssh, with the port and the keys of the gang.",
        "Batch Shipyard's contract of multi-instance images (port 23); azure_batch: pool-scope user; measured", ""),
    ImplicitRule("openmpi-slots",
        "Each host of Open MPI has a slot for each of its ranks, or for each processor if there are fewer.",
        "mpirun(1) of Open MPI: --host, --oversubscribe; PRRTE: rmaps_ppr.c (a node with more ranks than slots is"
        " oversubscribed, and its ranks yield); measured with Open MPI 4.1 and 5.0 (tests/bench/yields.py)",
        "`-np` or `-n` in `mpi.options`, with hosts of your own"),
    ImplicitRule("openmpi-prefix", "Open MPI looks for its daemons in the directory of its launcher.",
        "mpirun(1) of Open MPI: --prefix; measured with Open MPI 5.0", "`--prefix` in `mpi.options`"),
    ImplicitRule("mpi-binding",
        "Each rank of an MPI is bound to an equal share of the cores of its node, near its GPU.",
        "mpirun(1) of Open MPI: --map-by ppr with pe=, --bind-to; PRRTE: rmaps_base_binding.c (a share is in one"
        " package); MPICH: topo_hwloc.c (-bind-to core:N); Intel MPI: I_MPI_PIN (its default is such a share); MVAPICH"
        " 3.0: hwloc_bind.c (mvp_enable_affinity); measured with Open MPI 4.1 and 5.0, MPICH 5.0, Intel MPI 2021.18",
        "the MPI's own option in `mpi.options`, such as `--bind-to none`, or its variable"),
    ImplicitRule("intelmpi-yield",
        "Ranks of Intel MPI yield while they wait if there are more of them than processors.",
        "Intel MPI: I_MPI_THREAD_YIELD; measured with 2021.18 (2 processors: an all-reduce of 4 ranks did not end in a"
        " minute without it)", "`I_MPI_THREAD_YIELD` in environment_variables"),
    ImplicitRule("openmpi-environment",
        "Open MPI exports the variables of the primary's shell to every rank, as other MPIs do by default.",
        "mpirun(1) of Open MPI: -x", "`unset NAME` in `pre_execution_command`"),
    ImplicitRule("openmpi-daemons", "Open MPI starts each of its daemons from the primary, not one from another.",
        "Open MPI: plm_rsh_no_tree_spawn; PRRTE: plm_ssh_no_tree_spawn; measured with Open MPI 5.0", ""),
    ImplicitRule("mpich-abort",
        "A rank of MPICH that calls MPI_Abort ends by a signal, which the launch detects; not on nodes that dump"
        " cores.",
        "MPICH: MPIR_CVAR_COREDUMP_ON_ABORT; measured (its launcher often ends before it has reported which rank"
        " called)", "`MPIR_CVAR_COREDUMP_ON_ABORT` in environment_variables"),
    ImplicitRule("openmpi-as-root", "Open MPI may start ranks as root in a container.",
        "mpirun(1) of Open MPI: --allow-run-as-root; measured with Open MPI 5.0", ""),
    ImplicitRule("mpi4py-abort", "A Python program runs under `-m mpi4py`, so that an exception in one rank ends all.",
        "mpi4py: Run Python code with exception handling (mpi4py.run); measured",
        "write `-m` and a module, or another interpreter option, in the command"),
    ImplicitRule("ends-at-once",
        "A Python program of MXNet or JAX runs under `ends.py`, so that an exception in one process ends it at once.",
        "measured with MXNet 1.9.1 and JAX 0.10: their processes wait for all others when the interpreter ends",
        "begin the command with another word than Python, such as `env python train.py`"),
    ImplicitRule("ends-settled",
        "A Python program of PyTorch runs under `ends.py --settle`, so that threads of gloo cannot abort its end.",
        "PyTorch issue 190489; measured with PyTorch 2.13: 5 of 60 processes ended with code 134 without it",
        "`backend: nccl`, or begin the command with another word than Python, such as `env python train.py`"),
    ImplicitRule("preflight", "batchtrain checks every node before the launch and reports all faults at once.",
        "azure_batch: sizes (GPUs); NCCL: Troubleshooting (shared and locked memory); Azure ML: health checks",
        "`preflight: false` in `multi_instance`"),
    ImplicitRule("nccl-transport",
        "NCCL logs the network that it uses to a file on each node; one line reports it after the run.",
        "NCCL: Environment variables, NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS; its own lines, as NCCL 2.32 has them",
        "`NCCL_DEBUG`, `NCCL_DEBUG_SUBSYS` or `NCCL_DEBUG_FILE` in environment_variables, or in `leave_unset`"),
    ImplicitRule("container-sshd", "A container starts its own ssh server on port 23 for the launch between nodes.",
        "Batch Shipyard's contract of multi-instance images; azure_batch: pool-scope user and inter-node pools",
        "`coordination_command` with a command of your own"),
    ImplicitRule("processes-per-node", "The default number of ranks per node.",
        "Batch Shipyard gave none; one rank a node is what mpirun does with a bare list of hosts; a process a GPU:"
        " PyTorch DDP, Horovod, DeepSpeed; a process a node: TF_CONFIG, MXNet, JAX", "`processes_per_node`"),
    ImplicitRule("framework-environment",
        "Each process gets its rank and the world size in the variables of its framework.",
        "; ".join(block.source for block in FRAMEWORKS.values()),
        "`leave_unset` with the variable's name, where the program can do without it"),
    ImplicitRule("process-binding", "Each process of a node is bound to its own cores, near its GPU.",
        "measured: processes that share all cores slow each other down; NVIDIA: nvidia-smi topo (CPU affinity)",
        "`binding: none`"),
    ImplicitRule("torchrun-store", "Ranks that torchrun restarts use a new store.",
        "PyTorch: TORCH_DISABLE_SHARE_RDZV_TCP_STORE; measured with 2.13: without it restarts found old addresses",
        "`TORCH_DISABLE_SHARE_RDZV_TCP_STORE` in environment_variables, or in `leave_unset`"),
    ImplicitRule("omp-threads", "The threads of a process fit its share of the node's cores.",
        "PyTorch: torchrun sets OMP_NUM_THREADS=1; measured: 4 processes with all cores each slow each other down",
        "`OMP_NUM_THREADS` in environment_variables, or in `leave_unset`"),
    ImplicitRule("python-unbuffered", "Python prints a line when it is written.",
        "Python: -u, PYTHONUNBUFFERED (a pipe is buffered by block)", "`PYTHONUNBUFFERED` in `leave_unset`"),
    ImplicitRule("nccl-warnings", "NCCL reports why it fails.",
        "NCCL: Environment variables, NCCL_DEBUG; azureml-examples use WARN",
        "`NCCL_DEBUG` in environment_variables, or in `leave_unset`"),
    ImplicitRule("cuda-device-order", "GPUs are numbered by their place on the bus.",
        "CUDA C Programming Guide: CUDA_DEVICE_ORDER; azhpc-images: tests of NCCL",
        "`CUDA_DEVICE_ORDER` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-bootstrap",
        "NCCL's processes find each other over the pool's Ethernet, and exchange data over InfiniBand.",
        "NCCL: Environment variables, NCCL_SOCKET_IFNAME; azhpc-images: tests of NCCL",
        "`infiniband: false`, `NCCL_SOCKET_IFNAME` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-cards", "NCCL uses only the active InfiniBand ports of the node.",
        "NCCL: Environment variables, NCCL_IB_HCA; azhpc-images: names of the cards (mlx5_ib0, mlx5_an0)",
        "`infiniband: false`, `NCCL_IB_HCA` in environment_variables, or in `leave_unset`"),
    ImplicitRule("ucx-cards", "UCX uses the active InfiniBand ports of the node, with the partition key of its pool.",
        "Azure: Set up Message Passing Interface for HPC (UCX_NET_DEVICES, UCX_IB_PKEY)",
        "`infiniband: false`, the variable in environment_variables, or in `leave_unset`"),
    ImplicitRule("ucx-tcp", "UCX uses tcp, and shared memory in a node, on a gang without InfiniBand.",
        "UCX: FAQ (UCX_TLS; `cuda` or `rocm` for GPU memory); underworldcode/underworld3 issues 461 and 528,"
        " Pyomo/mpi-sppy pull request 827 (MPICH aborts in MPI_Init on mana_0); azhpc-images: test-definitions.sh",
        "`infiniband: true`, the variable in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-tcp", "NCCL and RCCL use sockets on a gang without InfiniBand.",
        "NCCL: Environment variables, NCCL_NET and NCCL_IB_DISABLE; init.cc, net_ib (RoCE ports count); RCCL: init.cc;"
        " NVIDIA/nccl issue 1101 (NET/IB uses mlx5_an0 on NC A100 v4)",
        "`infiniband: true`, the variable in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-graph",
        "NCCL reads the ways between the four GPUs of NC96ads_A100_v4 from a file of the HPC images, and searches them"
        " itself if fewer are used.",
        "azhpc-images: ncv4.sh (NCCL_GRAPH_FILE in /etc/nccl.conf), issue 327; NVIDIA/nccl issues 1008 and 1240; NCCL:"
        " graph/xml.cc and graph/search.cc (an empty file has no graphs)",
        "`NCCL_GRAPH_FILE` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-relaxed-ordering", "NCCL may reorder writes between GPU memory and the card.",
        "azhpc-images: /etc/nccl.conf of ND v4 and v5 (a container does not see that file)",
        "`infiniband: false`, `NCCL_IB_PCI_RELAXED_ORDERING` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-topology",
        "NCCL reads which GPU is near which card from a file of the HPC images; without the file, NCCL detects the"
        " topology.",
        "azhpc-images: topology, /etc/nccl.conf, setup_sku_customizations.sh; a container sees the file only where its"
        " folder is mounted",
        "`NCCL_TOPO_FILE` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-cpu-affinity", "NCCL chooses its cores by the topology, not by the CPU affinity of the process.",
        "azhpc-images: /etc/nccl.conf of ND v2, v4 and v5 and of NC96ads_A100_v4; Azure/ai-infrastructure-on-azure:"
        " NCCL/configs/graceblackwell.conf",
        "`NCCL_IGNORE_CPU_AFFINITY` in environment_variables, or in `leave_unset`"),
    ImplicitRule("nccl-nvlink",
        "NCCL uses NVLink between the nodes of a gang only if all of them are in its IMEX domain.",
        "NCCL: Environment variables, NCCL_MNNVL_ENABLE; init.cc, mnnvl.cc (ncclSystemError by default, too); Tuning"
        " and troubleshooting, Multi-node NVLink",
        "`NCCL_MNNVL_ENABLE` in environment_variables, or in `leave_unset`"),
    ImplicitRule("imex-domain",
        "The start task of a pool of GB200 or GB300 creates an IMEX channel, and a service that puts the node into the"
        " domain of each gang.",
        "NVIDIA: IMEX guide (channels, nodes_config.cfg); Azure/cyclecloud-slurm: imex_prolog.sh; azhpc-images:"
        " install_nvidiagpudriver.sh", "no `inter_node_communication_enabled`"),
    ImplicitRule("imex-device", "A container of a gang on GB200 or GB300 sees the IMEX channels of its node.",
        "NVIDIA: IMEX guide (channels); NCCL: mnnvl.cc", ""),
    ImplicitRule("locked-memory",
        "Tasks on the host of a pool with InfiniBand may lock memory: the start task raises the limit of the agent,"
        " which starts them.",
        "azhpc-images: hpc-tuning.sh (limits.conf, which counts for ssh sessions; DefaultLimitMEMLOCK on Alma, Rocky"
        " and RHEL only); prlimit(1)", "no `inter_node_communication_enabled`"),
    ImplicitRule("nccl-launch-file",
        "NCCL gets the settings of Azure's own launches on the family; what /etc/nccl.conf of the image sets is kept.",
        "Azure/ai-infrastructure-on-azure: NCCL/configs/hopper.conf, graceblackwell.conf",
        "`infiniband: false`, the variable in environment_variables, or in `leave_unset`"),
    ImplicitRule("infiniband-container",
        "A container that uses InfiniBand gets the device and may lock memory without limit.",
        "Azure: Use Azure Batch to run container workloads (RDMA); NCCL: Troubleshooting (memlock); batch_shipyard 3.4",
        "`infiniband: false` on the task or its job"),
    ImplicitRule("rocm-devices",
        "A container on a size with AMD GPUs gets the GPU devices, which the service adds for NVIDIA GPUs only.",
        "AMD ROCm: Running ROCm Docker containers (--device=/dev/kfd --device=/dev/dri)",
        "`gpus: disable` on the task or its job"),
    ImplicitRule("shm-size",
        "A container gets 8 GiB of shared memory per GPU, or 64 MiB per rank; at least 1 GiB, and at most half of the"
        " memory of the node.",
        "NCCL: Troubleshooting (--shm-size=1g); Batch Shipyard issue 8 (Intel MPI ends with a bus error in 64 MB)",
        "`shm_size` on the task or its job"),
    ImplicitRule("user-identity",
        "Containers and node preparation run as the pool's administrator (root inside), commands on the host as its"
        " plain user, who owns the key for ssh between the nodes.",
        "azure_batch: Run tasks under user accounts (auto-user, pool scope); batch_shipyard 3.2, 3.3",
        "`user_identity` on the task or its job"),
    ImplicitRule("pool-key", "The containers of a gang see the key with which the pool's nodes log in to each other.",
        "Azure/Batch issue 34 (the key of _azbatch is not visible in containers: bind-mount it)",
        "a mount of your own at `/home/_azbatch/.ssh`"),
    ImplicitRule("shell-functions",
        "A command that calls a function of login shells (`module load`, `conda activate`, `spack load`) loads it.",
        "Batch's command lines run no login shell; Environment Modules: module(1); Lmod, conda, micromamba, Spack, nvm,"
        " pyenv: shell set-up; measured with Debian's environment-modules 5.2",
        "define the function yourself before the call, or name the program by its path"),
    ImplicitRule("working-directory", "A container's command starts in the task's working directory.",
        "SDK: BatchTaskContainerSettings.working_directory; Batch Shipyard's default of `default_working_dir`",
        "`default_working_dir: container` on the task or its job"),
    ImplicitRule("apptainer-mounts", "An Apptainer image sees the node's Batch directories at the same paths.",
        "Apptainer: Bind Paths and Mounts (--bind); Azure Batch mounts AZ_BATCH_NODE_ROOT_DIR into its containers", ""),
    ImplicitRule("apptainer-gpus", "An Apptainer image on a GPU size sees the node's GPUs.",
        "Apptainer: GPU Support (--nv, --rocm); Batch Shipyard's rule for `gpus`",
        "`gpus: disable` on the task or its job"),
    ImplicitRule("gang-slot", "A multi-instance task takes one slot, since its pool has one a node.",
        "Azure Batch: Use multi-instance tasks (task slots must be 1)", "`required_slots` on the task"),
    ImplicitRule("job-action", "`exit_conditions` can end or disable the job; other failures do not affect it.",
        "SDK: BatchTaskFailureMode, ExitOptions.job_action (terminate is the service's default for any failure then)",
        "`on_task_failure: noaction` and no `job_action`"),
    ImplicitRule("task-dependencies", "A job whose tasks depend on others, or decide on others, uses dependencies.",
        "SDK: BatchJobCreateOptions.uses_task_dependencies; the service refuses dependencies without it", ""),
    ImplicitRule("prep-for-input", "A job preparation task downloads the input data of the job once on every node.",
        "SDK: BatchJobPreparationTask.resource_files; Batch Shipyard's rule for a job's `input_data`",
        "`input_data` on the tasks instead"),
    ImplicitRule("schedule-task", "The one task of a job schedule is each job's job manager task.",
        "SDK: BatchJobSpecification.job_manager_task; task authentication tokens ended on 30 September 2024",
        "`job_manager` with a command of your own that adds the tasks"),
    ImplicitRule("schedule-job-ends", "A job of a schedule ends with its only task, because the next job waits for it.",
        "SDK: BatchJobManagerTask.kill_job_on_completion; Azure Batch: Schedule jobs (one active job at a time)",
        "`auto_complete: true`"),
    ImplicitRule("resize-timeout-by-nodes", "A pool of more than 10 nodes has a longer time limit of its allocation.",
        "azure-batch 15.1, resizeTimeout (default 15 minutes); how long large pools take is untested",
        "`resize_timeout` in the pool file"),
    ImplicitRule("autoscale-to-zero",
        "`autoscale: to_zero` is the scenario `pending_tasks`: at most `vm_count` nodes, evaluated every 5 minutes.",
        "Azure Batch: Create a formula to automatically scale compute nodes in a Batch pool",
        "`autoscale` with a `scenario` or a `formula`"),
    ImplicitRule("idle-timeout",
        "`idle_timeout` is a formula: all nodes while a task waits or runs, none after this time without one.",
        "Azure Batch: Create a formula to automatically scale compute nodes in a Batch pool",
        "no `idle_timeout`, or `autoscale`"),
    ImplicitRule("auto-pool-prefix", "An automatic pool is named after the id of the pool file.",
        "SDK: BatchAutoPoolSpecification.auto_pool_id_prefix (at most 20 characters)", ""),
    ImplicitRule("merge-task", "The merge task depends on every other task of the job.",
        "Batch Shipyard's rule for `merge_task`; SDK: BatchTaskDependencies", "an ordinary task with `depends_on`"),
    ImplicitRule("sign-in-not-delayed",
        "Batch fetches the images of a registry with a sign-in, even if the start task fetches the other images.",
        "SDK: ContainerRegistryReference (write-only password; a start task's environment can be read back)",
        "`delay_docker_image_preload: false`"),
    ImplicitRule("ssh-endpoint", "A pool with a login opens the port for it.",
        "Azure Batch: Configure endpoints in pools (pool-endpoint-configuration): none by default since API 2024-07-01",
        "remove `ssh` or `rdp`, or write `network.inbound_nat_pools` with the port, or remove public addresses"),
    ImplicitRule("addresses-of-your-own", "A pool with `public_ips` uses user-managed provisioning.",
        "SDK: BatchPublicIpAddressConfiguration.ip_address_ids (only with user-managed provisioning)",
        "`network.public_ip`"),
    ImplicitRule("own-preparation-waits",
        "Tasks wait for a start task that prepares, downloads or mounts something, not for one that only fetches"
        " images.", "SDK: BatchStartTask.wait_for_success; Batch Shipyard left only the fetching of images behind",
        "remove the pool's own preparation, files, data and mounts"),
    ImplicitRule("apptainer-installed",
        "Apptainer is installed on nodes that fetch Apptainer images and have neither Apptainer nor Singularity.",
        "Apptainer: Installing Apptainer (Ubuntu's ppa:apptainer/ppa, EPEL); Batch Shipyard installed Singularity",
        "remove `global_resources.singularity_images`, or use a VM image that includes it"),
)
# fmt: on

RULES: dict[str, ImplicitRule] = {rule.id: rule for rule in _RULES}
