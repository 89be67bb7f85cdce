"""observe.py node|gang|task FACTS: notes what this node shows of Azure Batch, for `batchtrain verify`.

Writes output/observed-PART.json in the working directory: one value for each observation, or {"unread": reason}. These
are facts; batchtrain judges them. `node` runs as coordination command on every node, `gang` as application
command on the primary, `task` in a task of one node. FACTS is a JSON object with what the client expects of the size.
Python 3.6, standard library only. No value of a variable that may hold a secret is noted.
"""

import fcntl
import glob
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from typing import Any, Callable, Dict, List

SHOWN = (
    "AZ_BATCH_HOST_LIST", "AZ_BATCH_MASTER_NODE", "AZ_BATCH_NODE_LIST", "AZ_BATCH_IS_CURRENT_NODE_MASTER",
    "AZ_BATCH_NODE_ROOT_DIR", "AZ_BATCH_NODE_SHARED_DIR", "AZ_BATCH_NODE_MOUNTS_DIR", "AZ_BATCH_TASK_SHARED_DIR",
    "AZ_BATCH_TASK_WORKING_DIR", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
"""The variables whose values are noted."""
PATIENCE = 20
METADATA = "http://169.254.169.254/metadata"
MARK = "/tmp/batchtrain-verify-coordination"
"""What the coordination command leaves in its file system."""
DEVICES = "/dev/infiniband"
KEYS = ("/home/_azbatch/.ssh", os.path.expanduser("~/.ssh"))


def text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def ran(*words: str, patience: int = PATIENCE) -> Dict[str, Any]:
    """What a program ended with and printed. Raises OSError if it is missing, and TimeoutExpired."""
    began = time.monotonic()
    result = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=patience, stdin=subprocess.DEVNULL
    )
    return {
        "code": result.returncode,
        "lines": result.stdout.decode("utf-8", "replace").splitlines()[:20000],
        "error": result.stderr.decode("utf-8", "replace")[-500:],
        "seconds": round(time.monotonic() - began, 3),
    }


def metadata_of(path: str) -> Any:
    """A document of the Instance Metadata Service, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(METADATA + path, headers={"Metadata": "true"})
    with opener.open(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read().decode())


# --- one node ---------------------------------------------------------------------------------------------------------


def environment(_: Dict[str, Any]) -> Any:
    return {name: os.environ[name] for name in SHOWN if name in os.environ}


def user(_: Dict[str, Any]) -> Any:
    may_use_sudo = bool(shutil.which("sudo")) and ran("sudo", "-n", "true")["code"] == 0
    return {"uid": os.getuid(), "groups": sorted(os.getgroups()), "sudo": may_use_sudo}


def addresses(_: Dict[str, Any]) -> Any:
    interfaces = {}
    for name in os.listdir("/sys/class/net"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue
            interfaces[name] = socket.inet_ntoa(answer[20:24])
    return interfaces


def own_address(_: Dict[str, Any]) -> Any:
    """The interface that has an address of AZ_BATCH_HOST_LIST."""
    for name, address in addresses(_).items():
        if address in hosts():
            return name
    raise OSError("no interface has an address of AZ_BATCH_HOST_LIST")


def infiniband(facts: Dict[str, Any]) -> Any:
    ports = [
        {
            "device": port.split("/")[4],
            "link_layer": text(port + "/link_layer"),
            "state": text(port + "/state"),
            "rate": int(float(text(port + "/rate").split()[0])),
            "pkeys": sorted({text(key) for key in glob.glob(port + "/pkeys/*")} - {"0x0000"}),
        }
        for port in sorted(glob.glob("/sys/class/infiniband/*/ports/*"))
    ]
    devices = sorted(os.listdir(DEVICES)) if os.path.isdir(DEVICES) else []
    return {"ports": ports, "devices": devices, "expected": facts["ports"], "rate": facts["rate"]}


def query(field: str) -> List[str]:
    lines = ran("nvidia-smi", "--query-gpu=" + field, "--format=csv,noheader,nounits")["lines"]
    return [line.strip() for line in lines]


def gpus(facts: Dict[str, Any]) -> Any:
    listing = ran("nvidia-smi", "-L")
    positions = sorted(os.listdir("/proc/driver/nvidia/gpus")) if os.path.isdir("/proc/driver/nvidia/gpus") else []
    return {
        "code": listing["code"],
        "count": sum(line.startswith("GPU ") for line in listing["lines"]),
        "expected": facts["gpus"],
        "seconds": listing["seconds"],
        "bus": [line.lower()[-12:] for line in query("pci.bus_id")],
        "positions": [name.lower()[-12:] for name in positions],
    }


def gpu_memory(facts: Dict[str, Any]) -> Any:
    return {"mib": [int(line) for line in query("memory.total")], "expected_gib": facts["gpu_gib"]}


def amd_gpus(facts: Dict[str, Any]) -> Any:
    ids = [text(path) for path in glob.glob("/sys/class/kfd/kfd/topology/nodes/*/gpu_id")]
    if not ids:
        raise OSError("/sys/class/kfd/kfd/topology has no nodes")
    return {"count": len([name for name in ids if name != "0"]), "expected": facts["gpus"]}


def locked_memory(_: Dict[str, Any]) -> Any:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {"unlimited": limit == resource.RLIM_INFINITY, "bytes": limit}


def nccl(_: Dict[str, Any]) -> Any:
    """The settings of the image, and where its topology files are."""
    lines = [line for line in text("/etc/nccl.conf").splitlines() if "=" in line]
    files = glob.glob("/opt/microsoft/*/topo.xml") + glob.glob("/opt/microsoft/*-topo.xml")
    return {
        "settings": dict(line.split("=", 1) for line in lines),
        "topologies": {path: os.path.realpath(path) for path in sorted(files)},
    }


def pool_keys(_: Dict[str, Any]) -> Any:
    """The files of the pool's key: the directory where Batch makes it, or its mount in a container."""
    home = next((path for path in KEYS if os.path.isdir(path)), KEYS[0])
    owner = os.stat(home)
    mode = oct(owner.st_mode & 0o7777)
    return {"directory": home, "names": sorted(os.listdir(home)), "owner": owner.st_uid, "mode": mode}


def disks(_: Dict[str, Any]) -> Any:
    """Where the files of tasks lie. `apart`: on another disk than the operating system."""
    root = os.environ["AZ_BATCH_NODE_ROOT_DIR"]
    space = os.statvfs(root)
    return {"apart": os.stat(root).st_dev != os.stat("/").st_dev, "gib": space.f_blocks * space.f_frsize / 2.0**30}


def metadata(_: Dict[str, Any]) -> Any:
    events = metadata_of("/scheduledevents?api-version=2020-07-01")
    compute = metadata_of("/instance/compute?api-version=2021-02-01&format=json")
    return {"events": "Events" in events, "name": compute["name"]}


def python(_: Dict[str, Any]) -> Any:
    makes_environments = ran(sys.executable, "-c", "import venv, ensurepip")["code"] == 0
    return {"version": list(sys.version_info[:2]), "venv": makes_environments}


def start_task(_: Dict[str, Any]) -> Any:
    """What the start task of the pool has left in the shared directory."""
    return {"variables": text(os.environ["AZ_BATCH_NODE_SHARED_DIR"] + "/batchtrain-verify").split()}


def files(_: Dict[str, Any]) -> Any:
    """Makes the names whose listing the client looks at."""
    with open("output/target", "w", encoding="ascii") as file:
        file.write("0123456789")
    for source, name in (("target", "output/link"), ("/etc", "output/folder")):
        if not os.path.islink(name):
            os.symlink(source, name)
    with open(b"output/\xff", "w", encoding="ascii") as file:
        file.write("x")
    return True


def start_mount(_: Dict[str, Any]) -> Any:
    """Whether a file system is there that the start task has mounted."""
    return os.path.isfile(os.environ["AZ_BATCH_NODE_MOUNTS_DIR"] + "/verify/file")


def option_mount(_: Dict[str, Any]) -> Any:
    """Whether a mount whose path has a space is there."""
    return os.path.isdir("/verify scratch")


def coordinated(_: Dict[str, Any]) -> Any:
    """Leaves a mark in the file system of the coordination command."""
    with open(MARK, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    return True


NODE: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    function.__name__: function
    for function in (
        environment, user, addresses, own_address, infiniband, gpus, gpu_memory, amd_gpus, locked_memory, nccl,
        pool_keys, disks, metadata, python, start_task, option_mount, start_mount,
    )
}  # fmt: skip


# --- the gang, from its primary --------------------------------------------------------------------------------------


def hosts() -> List[str]:
    return os.environ["AZ_BATCH_HOST_LIST"].split(",")


def reach(_: Dict[str, Any]) -> Any:
    """The seconds until each node accepts a connection on the ports of ssh; None if it does not."""
    answers: Dict[str, Dict[str, Any]] = {}
    for host in hosts():
        for port in (22, 23):
            began = time.monotonic()
            try:
                socket.create_connection((host, port), 3).close()
                seconds = round(time.monotonic() - began, 3)  # type: Any
            except OSError:
                seconds = None
            answers.setdefault(host, {})[str(port)] = seconds
    return answers


def ssh(_: Dict[str, Any]) -> Any:
    """What an ssh session on each node is: its variables of Batch, its limit of locked memory, and its clock."""
    sessions = {}
    for host in hosts():
        options = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=5")
        before = time.time()
        result = ran("ssh", *options, host, "date +%s.%N; ulimit -l; env | grep -c ^AZ_BATCH_ || :")
        after = time.time()
        lines = result["lines"] + ["", "", ""]
        sessions[host] = {"code": result["code"], "error": result["error"]}
        if result["code"] == 0:
            sessions[host].update({
                "memlock": lines[1],
                "variables": int(lines[2]),
                "ahead": round(float(lines[0]) - (before + after) / 2, 4),
                "unsure": round((after - before) / 2, 4),
            })  # fmt: skip
    return sessions


def same_container(_: Dict[str, Any]) -> Any:
    """Whether the file system of the coordination command is that of the application command."""
    return os.path.exists(MARK)


# --- programs of the HPC images, on two nodes -------------------------------------------------------------------------

WORDS = (
    "NET/", "Using network", "Init COMPLETE", "GPU Direct RDMA", "Bootstrap", "NCCL version", "Avg bus bandwidth",
    "selected ucx", "selected ob1", "libfabric provider", "PMI_RANK",
    "MV2_COMM_WORLD_RANK", "data transfer mode", "Version", "X=",
)  # fmt: skip
"""In the lines that are kept, besides the last ones."""
MISSING = 127
OLD_INTEL_MPI = """
        for path in /opt/intel/impi/{5.1,2017,2018}*/intel64/bin/mpivars.sh \\
          /opt/intel/compilers_and_libraries_201[678]*/linux/mpi/intel64/bin/mpivars.sh; do
          [ ! -r "$path" ] || . "$path"
        done
        type -P mpirun >/dev/null || exit 127
        mpirun -V | head -1
        I_MPI_DEBUG=5 I_MPI_FABRICS=shm:ofa mpirun -hosts "$HOSTS" -np 2 -ppn 1 IMB-MPI1 PingPong"""
PROGRAMS = {
    "intelmpi_ofa": OLD_INTEL_MPI,
    "intelmpi": """module load mpi/impi && type -P IMB-MPI1 >/dev/null || exit 127
        I_MPI_DEBUG=5 I_MPI_FABRICS=shm:ofi FI_PROVIDER=mlx mpirun -hosts "$HOSTS" -np 2 -ppn 1 IMB-MPI1 PingPong""",
    "openmpi": """module load mpi/hpcx && [ -x "$HPCX_OSU_DIR/osu_bw" ] || exit 127
        mpirun --host "$HOSTS" -np 2 --map-by ppr:1:node --mca pml ucx --mca btl ^vader,tcp,openib \\
          --mca pml_base_verbose 10 -x UCX_NET_DEVICES="$PORTS" "$HPCX_OSU_DIR/osu_bw" 2>&1""",
    "openmpi4": """module load mpi/hpcx && mpirun --version | grep 'Open MPI) 4' || exit 127
        export X='a;b' OMPI_MCA_plm_rsh_no_tree_spawn=1
        mpirun --prefix "$(cd "$(dirname "$(type -P mpirun)")/.." && pwd)" --host "$HOSTS" -np 2 --map-by ppr:1:node \\
          -x X sh -c 'echo "X=$X"'""",
    "partition": """module load mpi/hpcx && [ -x "$HPCX_OSU_DIR/osu_bw" ] || exit 127
        key=$(cat /sys/class/infiniband/*/ports/1/pkeys/[01] | grep -v -e '0x.fff' -e 0x0000 | head -1)
        for setting in '' "-x UCX_IB_PKEY=$(printf 0x%04x $((key & 0x7fff)))"; do
          mpirun --host "$HOSTS" -np 2 --map-by ppr:1:node --mca pml ucx -x UCX_NET_DEVICES="$PORTS" $setting \\
            "$HPCX_OSU_DIR/osu_bw" || exit 1
        done""",
    "ucc": """module load mpi/hpcx && type -P ucc_perftest >/dev/null || exit 127
        mpirun --host "$HOSTS" -np 2 --map-by ppr:1:node -x UCX_NET_DEVICES="$PORTS" -x UCC_TLS=ucp \\
          ucc_perftest -c allreduce -m host -b 1M -e 1M""",
    "mvapich": """module load mpi/mvapich2 || module load mpi/mvapich || exit 127
        mpirun -hosts "$HOSTS" -np 2 -ppn 1 env""",
    "openmpi_tcp": """module load mpi/hpcx && [ -x "$HPCX_OSU_DIR/osu_bw" ] || exit 127
        mpirun --host "$HOSTS" -np 2 --map-by ppr:1:node --mca pml ob1 --mca btl ^openib,uct,ofi \\
          --mca coll ^hcoll,ucc --mca btl_tcp_if_include eth0 --mca pml_base_verbose 10 \\
          -x UCX_TLS=tcp,self,sm -x UCX_NET_DEVICES=eth0 "$HPCX_OSU_DIR/osu_bw" 2>&1""",
    "intelmpi_tcp": """module load mpi/impi-2021 || module load mpi/impi
        type -P IMB-MPI1 >/dev/null || exit 127
        I_MPI_DEBUG=5 FI_PROVIDER=tcp FI_TCP_IFACE=eth0 mpirun -hosts "$HOSTS" -np 2 -ppn 1 IMB-MPI1 PingPong""",
    "mvapich_tcp": """module load mpi/mvapich || exit 127
        latency=$(find "${MPI_HOME:-/opt}/" -name osu_latency -path '*pt2pt*' 2>/dev/null | head -1)
        [ -x "$latency" ] || exit 127
        export UCX_TLS=tcp,self,sm UCX_NET_DEVICES=eth0 FI_PROVIDER=tcp FI_TCP_IFACE=eth0
        mpirun -hosts "$HOSTS" -np 2 -ppn 1 "$latency" """,
    "openmpi_binding": """module load mpi/hpcx || exit 127
        cores=$(lscpu -p=CORE,SOCKET | grep -v '#' | sort -u | wc -l) all=$(env -u OMP_NUM_THREADS nproc)
        mpirun --host "${HOSTS/,/:2,}:2" -np 4 --map-by "ppr:2:node:pe=$((cores / 2))" --bind-to core -x all="$all" \\
          bash -c 'echo "X=$(($(env -u OMP_NUM_THREADS nproc) * 2 == all))"'""",
    "nccl_graph": """module load mpi/hpcx && [ -x "${TESTS:=/opt/nccl-tests}/build/all_reduce_perf" ] || exit 127
        mpirun --host "$HOSTS" -np 2 --map-by ppr:1:node --mca pml ob1 --mca btl ^openib,uct,ofi \\
          --mca coll ^hcoll,ucc --mca btl_tcp_if_include eth0 -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 \\
          -x NCCL_NET=Socket -x NCCL_IB_DISABLE=1 -x NCCL_GRAPH_FILE=/dev/null \\
          "$TESTS/build/all_reduce_perf" -b 1M -e 1M -g 1""",
    "nccl": """module load mpi/hpcx && [ -x "${TESTS:=/opt/nccl-tests}/build/all_reduce_perf" ] || exit 127
        mpirun --host "${HOSTS/,/:$GPUS,}:$GPUS" -np $((2 * GPUS)) --map-by "ppr:$GPUS:node" \\
          --mca coll_hcoll_enable 0 -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_IB_HCA="=$PORTS" \\
          "${SETTINGS[@]}" "$TESTS/build/all_reduce_perf" -b 8G -e 8G -g 1""",
}
"""For bash, with the two nodes, all InfiniBand ports and the GPUs of a node. 127: the image has no such program."""
PROGRAMS["nccl_settings"] = 'mapfile -t SETTINGS < <(sed -n "s/./-x\\n&/p" <<<"$NCCL"); ' + PROGRAMS["nccl"]
PROGRAMS["nccl_tcp"] = "SETTINGS=(-x NCCL_NET=Socket -x NCCL_IB_DISABLE=1); " + PROGRAMS["nccl"]
PROGRAMS["rccl"] = "TESTS=/opt/rccl-tests; " + PROGRAMS["nccl"]
ANYWHERE = ("openmpi4", "openmpi_tcp", "intelmpi_tcp", "mvapich_tcp", "openmpi_binding", "nccl_graph")
"""Programs that need no InfiniBand."""


def program(name: str) -> Callable[[Dict[str, Any]], Any]:
    def run(facts: Dict[str, Any]) -> Any:
        if not facts["ports"] and name not in ANYWHERE:
            raise OSError("the size has no InfiniBand")
        os.environ["HOSTS"] = ",".join(hosts()[:2])
        ports = [port["device"] for port in infiniband(facts)["ports"] if port["link_layer"] == "InfiniBand"]
        os.environ["PORTS"] = ",".join(port + ":1" for port in ports)
        os.environ["GPUS"] = str(facts["gpus"])
        os.environ["NCCL"] = "\n".join(facts["nccl"])
        result = ran("bash", "-lc", PROGRAMS[name], patience=300)
        if result["code"] == MISSING:
            raise OSError("the image has no such program")
        lines = [line for line in result["lines"] if any(word in line for word in WORDS)][:200]
        return {"code": result["code"], "size": facts["size"], "lines": lines, "end": result["lines"][-5:]}

    return run


GANG: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    function.__name__: function
    for function in (environment, addresses, reach, ssh, same_container, files, locked_memory)
}
GANG.update((name, program(name)) for name in PROGRAMS)
PARTS = {"node": dict(NODE, coordinated=coordinated), "gang": GANG, "task": NODE}


def observed(observations: Dict[str, Callable[[Dict[str, Any]], Any]], facts: Dict[str, Any]) -> Dict[str, Any]:
    """The value of each observation. One that fails is unread, whatever the reason."""
    return {name: value(function, facts) for name, function in observations.items()}


def value(function: Callable[[Dict[str, Any]], Any], facts: Dict[str, Any]) -> Any:
    try:
        return function(facts)
    except Exception as error:  # noqa: BLE001 - a fact that cannot be read costs no other one
        return {"unread": "%s: %s" % (type(error).__name__, error)}


def write(part: str, facts: Dict[str, Any]) -> None:
    """Writes the observations of a part. The file is complete or missing, also if the task is ended meanwhile."""
    path = "output/observed-%s.json" % part
    values = observed(PARTS[part], facts)
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(values, file)
    os.rename(path + ".part", path)


if __name__ == "__main__":
    os.makedirs("output", exist_ok=True)
    write(sys.argv[1], json.loads(sys.argv[2]))
