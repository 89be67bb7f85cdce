"""torchrun.py [ARGUMENT]...: runs torchrun, and keeps the rendezvous store of the first node until every node is done.

The torchrun of the first node hosts the store. It can exit while another node still waits at the exit barrier, which
then prints a traceback after a successful training (PyTorch 2.13; its issue 69520). Stores of one process share a
server per port if all of them are created with `multi_tenant`; a PyTorch without this option runs plain torchrun.
"""

import contextlib
import os
import signal
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.run import main

CONNECT = timedelta(seconds=10)
LEAVE = timedelta(seconds=60)
"""The exit barrier is over on the first node, so the other nodes need only a moment."""
STORE_ERRORS = (RuntimeError, ValueError, TimeoutError)


def done_key(node: int) -> str:
    return f"batchtrain/done/{node}"


def open_store(first: bool) -> TCPStore:
    host, port = os.environ["BATCHTRAIN_MASTER_ADDRESS"], int(os.environ["BATCHTRAIN_MASTER_PORT"])
    return TCPStore(host, port, is_master=first, timeout=CONNECT, wait_for_workers=False, multi_tenant=True)


def host(nodes: int) -> None:
    """torchrun itself reports a port that is in use."""
    try:
        store = open_store(first=True)
    except (TypeError, *STORE_ERRORS):
        main()
        return
    main()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun's handler would run only after the wait
    with contextlib.suppress(*STORE_ERRORS):
        store.wait([done_key(node) for node in range(1, nodes)], LEAVE)


def join(node: int) -> None:
    main()
    with contextlib.suppress(TypeError, *STORE_ERRORS):
        open_store(first=False).set(done_key(node), "")


def run(node: int, nodes: int) -> None:
    if nodes == 1:
        main()
    elif node == 0:
        host(nodes)
    else:
        join(node)


if __name__ == "__main__":
    run(int(os.environ["BATCHTRAIN_NODE_RANK"]), int(os.environ["BATCHTRAIN_NODES"]))
