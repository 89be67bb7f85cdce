"""A node's side: the guard, and the supervisor that starts and ends the processes of the node."""

import json
import os
import select
import signal
import socket
import sys
import time
from glob import glob

from .channel import Channel, Loop
from .environment import NCCLS_NOTES, carried, past_proxies, without, without_rivals
from .gpus import gpu_homes
from .kernel import killed_for_memory, names_in, nccl_settings_of_image, numa_nodes, share_cpus
from .node_facts import look, preflight, ranks_folder, verdict
from .process_end import error_of
from .processes import (
    Tree,
    become_subreaper,
    exit_code,
    is_ready,
    left_of,
    marked,
    output_of,
    own_environment,
    prepared,
    reap,
    send_signal,
    signal_of,
    spawn,
)
from .spec import HERE, QUICK, LaunchError, Message, Spec, Values
from .stall import LOOKS

MOST_KEPT = 64 << 20
"""Bytes of a process's stdout, and of its stderr, that a file keeps."""
WINDOW = 256 * 1024
"""Bytes of output that a node may send before the primary has accepted them."""
METRICS = ".metrics.jsonl"
ERROR = ".error.json"
TORCHRUNS_ERRORS = "torchelastic/*/attempt_*/*/error.json"

MEASURES = 1.0
"""Seconds between two looks at what the programs measured."""
MOST_MEASURED = 64 << 20
"""Bytes of a file of BATCHTRAIN_METRICS that are sent to the primary."""

SAMPLED = 5.0
"""Most seconds between two looks at the newest sample."""
SAMPLES_BEGIN = 1.0
"""Seconds until a node is sampled: a launch is not to be slower for it."""


def guarded(reader: int, writer: int, mark: str) -> int:
    """Fork the supervisor, and let no process outlive it. Runs in the process that ssh, or the primary, started."""
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    guards, supervisors = socket.socketpair()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            guards.close()
            Supervisor(reader, writer, supervisors, mark).loop.run()
            code = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, its node is lost, and the reason is reported
            refuse(f"its supervisor failed: {error!r}")
        finally:
            os._exit(code)
    supervisors.close()
    stand_guard(pid, guards, reader)
    code = exit_code(os.waitpid(pid, 0)[1])
    sweep(mark)
    return code


def stand_guard(pid: int, life: socket.socket, channel: int) -> None:
    """Wait for the end of the supervisor. If it stays after its primary is gone (it was stopped), kill it."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    poll.register(channel, getattr(select, "POLLRDHUP", 0x2000))
    patience: "int | None" = None
    while True:
        events = [fd for fd, _ in poll.poll(patience)]
        if life.fileno() in events:
            return
        if not events:
            send_signal(signal.SIGKILL, pid)
            return
        poll.unregister(channel)
        patience = 2000


def sweep(mark: str, seconds: float = 3) -> None:
    """SIGKILL all remaining processes until none is left."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        left = left_of(mark)
        if not left:
            return
        for pid in left:
            send_signal(signal.SIGKILL, pid)
        reap()
        time.sleep(0.005)


def make_directory(path: str) -> None:
    """A failure here is reported when a file in the folder is opened."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        pass


def first_on_path(folder: str, path: str) -> str:
    """A search path with a folder at its beginning."""
    return os.pathsep.join([folder, *[each for each in path.split(os.pathsep) if each and each != folder]])


def refuse(text: str) -> int:
    os.write(2, f"batchtrain: {text}\n".encode("utf-8", "replace"))
    return 1


def last_line(path: str) -> bytes:
    """The last whole line of a file; empty without one."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.stat(path).st_size - 4096))
            return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
    except OSError:
        return b""


def gpu_percent(line: bytes) -> "float | None":
    """The use of the GPUs in a sample; None without one."""
    try:
        return float(json.loads(line.decode())["gpu_percent"])
    except (ValueError, KeyError, TypeError):
        return None


class Running:
    """A process of the gang, as its supervisor sees it."""

    def __init__(self, identity: int, pid: int, readers: "list[int]", files: "list[int]") -> None:
        self.id = identity
        self.errors = ""
        """The pattern of the files in which its programs describe their exceptions."""
        self.pid = pid
        self.readers = readers
        """Its stdout and stderr; -1 once ended."""
        self.files = files
        self.kept = [0, 0]
        self.stopped_since = 0.0
        self.metrics = ""
        """Its file of BATCHTRAIN_METRICS."""
        self.measured = 0
        """Bytes of this file that were sent."""


class Supervisor:
    """Starts the processes of one node, forwards their output, reports their ends, and ends them."""

    def __init__(self, reader: int, writer: int, guard: socket.socket, mark: str) -> None:
        become_subreaper()
        self.mark = mark
        self.loop = Loop()
        self.channel = Channel(self.loop, reader, writer, greeted=True)
        self.channel.on_message = self.on_message
        self.channel.on_end = lambda: self.end(QUICK)
        self.credit = WINDOW
        self.paused: "list[tuple[Running, int]]" = []
        self.running: "dict[int, Running]" = {}
        self.every: "list[Running]" = []
        self.logs = True
        self.knows_network = False
        """Whether NCCL has noted the network of each of its processes."""
        self.of_image: "list[str]" = []
        """The variables that the image sets for NCCL, whose values are kept."""
        self.rivals: "dict[str, list[str]]" = {}
        self.sample_pause = 0.0
        """Seconds between two samples of the GPUs that the primary gets; 0: it gets none."""
        self.ending = False
        self.signalled: "set[int]" = set()
        self.killed = killed_for_memory()
        self.deadline = 0.0
        self.environment: "Values" = {}
        self.directory = "/"
        self.heartbeat = 30.0
        self.preemption: "str | None" = None
        self.loop.watch(guard.fileno(), lambda: self.on_guard(guard))
        self.loop.on(signal.SIGCHLD, lambda _: self.on_children())
        self.loop.on(signal.SIGTERM, self.on_sigterm)
        self.channel.greet()
        self.channel.flush()

    # messages

    def on_message(self, message: "Message") -> None:
        getattr(self, "on_" + message["do"])(message)

    def on_look(self, message: "Message") -> None:
        """The first message: what is to run, and the environment of the primary."""
        emulated = os.environ.get("BATCHTRAIN_EMULATED_NODE", "")
        roots = (message["root"], emulated if emulated.startswith("/") else message["root"])
        self.environment = carried(message["environment"], own_environment(), roots)
        self.heartbeat = message["heartbeat"]
        own = os.environ.get("AZ_BATCH_TASK_WORKING_DIR", "/")
        there = message["directory"].replace(*roots) if roots[0] else message["directory"]
        self.directory = there if os.path.isdir(there) else own
        name = os.environ.get("AZ_BATCH_NODE_ID") or socket.gethostname()
        spec = Spec(message["spec"])
        self.preemption = spec.preemption
        self.logs = spec.rank_logs
        self.rivals = spec.rivals
        self.of_image = [name for name in nccl_settings_of_image() if name not in spec.over_image]
        self.sample_pause = min(spec.stop_when.get("idle", 0) / LOOKS, SAMPLED)
        checked = preflight(spec, message, self.environment)
        try:
            facts = look(message, self.environment, self.directory)
        except LaunchError as error:
            facts = {"error": str(error)}
        self.channel.send(do="hello", node=name, time=time.time(), **checked, **facts)
        self.channel.heard = time.monotonic()
        self.beat()

    def on_start(self, message: "Message") -> None:
        folder = ranks_folder(self.directory)
        for name in names_in(folder):
            if name.startswith("nccl.") or name.endswith((METRICS, ERROR)):  # of an earlier attempt
                os.unlink(os.path.join(folder, name))
        for path in glob(os.path.join(folder, TORCHRUNS_ERRORS)):
            os.unlink(path)
        make_directory(folder)  # programs write their metrics there
        if self.preemption is not None:
            self.watch_preemption()
        shares: "list[list[int]]" = []
        if message["bind"]:
            homes = gpu_homes()
            shares = share_cpus(numa_nodes(), [homes.get(gpu, -1) for gpu in message["slots"]])
        for process in message["processes"]:
            slot = process["slot"]
            process["command"] = prepared(message["before"], process["command"])
            self.start(process, folder, shares[slot] if 0 <= slot < len(shares) else [])
        self.loop.later(MEASURES, self.measure)
        samples = os.path.join(folder, "node" + METRICS)
        self.loop.later(SAMPLES_BEGIN, lambda: self.sample(samples))
        if self.sample_pause:
            self.loop.later(self.sample_pause, lambda: self.send_sample(samples, b""))

    def sample(self, file: str) -> None:
        """Start the sampler of this node. It is a child like the ranks, so it ends with them."""
        if not self.ending and self.running:
            null = os.open(os.devnull, os.O_RDWR)
            program = ["bash", os.path.join(HERE, "node.sh"), "samples", file, str(os.getpid())]
            spawn(program, dict(self.environment, BATCHTRAIN_GANG=self.mark), "/", (null, null, null), [])
            os.close(null)

    def send_sample(self, file: str, before: bytes) -> None:
        """Send how much the GPUs of this node work, if there is a new sample."""
        if self.ending:
            return
        line = last_line(file)
        percent = gpu_percent(line) if line != before else None
        if percent is not None:
            self.channel.send(do="sampled", gpu_percent=percent)
        self.loop.later(self.sample_pause, lambda: self.send_sample(file, line))

    def start(self, process: "Message", folder: str, cpus: "list[int]") -> None:
        environment = without_rivals(process["defaults"], self.rivals, [*self.environment, *self.of_image])
        environment = without(environment, self.of_image)
        if any(name in self.environment for name in NCCLS_NOTES):
            environment = without(environment, NCCLS_NOTES)  # the user's own NCCL log must not go to our file
        environment.update(self.environment)
        environment.update(process["environment"])
        environment["BATCHTRAIN_GANG"] = self.mark
        environment["BATCHTRAIN_METRICS"] = os.path.join(folder, process["file"] + METRICS)
        environment["PYTHONPATH"] = first_on_path(os.path.join(HERE, "python"), environment.get("PYTHONPATH", ""))
        past_proxies(environment, process["environment"]["BATCHTRAIN_HOST_LIST"])
        null = os.open(os.devnull, os.O_RDONLY)
        pipes = [os.pipe(), os.pipe()]
        stdio = (null, pipes[0][1], pipes[1][1])
        pid = spawn(["bash", "-c", process["command"]], environment, self.directory, stdio, cpus)
        for fd in stdio:
            os.close(fd)
        files = [self.open_file(folder, process["file"], name) for name in ("stdout", "stderr")]
        running = Running(process["id"], pid, [pipe[0] for pipe in pipes], files)
        running.errors = environment.get("TORCHELASTIC_ERROR_FILE") or os.path.join(folder, TORCHRUNS_ERRORS)
        running.metrics = environment["BATCHTRAIN_METRICS"]
        self.running[pid] = running
        self.every.append(running)
        for stream in (0, 1):
            os.set_blocking(running.readers[stream], False)
            self.resume(running, stream)

    def open_file(self, folder: str, process: str, stream: str) -> int:
        if not self.logs:
            return -1
        try:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"{process}.{stream}.txt")
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            self.say(f"the output of {process} is kept in no file: {error}")
            return -1

    def say(self, text: str) -> None:
        self.channel.send(do="say", text=text)

    def on_credit(self, message: "Message") -> None:
        self.credit += message["bytes"]
        if self.credit > 0:
            paused, self.paused = self.paused, []
            for running, stream in paused:
                if running.readers[stream] >= 0:
                    self.resume(running, stream)

    def on_end(self, message: "Message") -> None:
        self.end(message["grace"])

    def on_stacks(self, message: "Message") -> None:
        """Send what the Python processes of this node do."""
        line = [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "stacks.py"), "BATCHTRAIN_GANG"]
        environment = dict(self.environment, BATCHTRAIN_GANG=self.mark)
        _, printed = output_of(line, environment, "/", message["seconds"])
        self.channel.send(do="stacks", lines=printed.decode("utf-8", "replace").splitlines())

    # preemption

    def watch_preemption(self) -> None:
        """On a spot node, a program waits for the announcement, and prints it. What an earlier try left is removed."""
        try:
            os.unlink(self.environment["BATCHTRAIN_PREEMPTION"])
        except FileNotFoundError:
            pass
        if self.environment.get("AZ_BATCH_NODE_IS_DEDICATED") != "false":
            return
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        line = [sys.executable, "-I", "-S", os.path.join(HERE, "preemption.py")]
        spawn(line, self.environment, "/", (null, writer, null), [])
        os.close(null)
        os.close(writer)
        self.loop.watch(reader, lambda: self.on_announced(reader))

    def on_announced(self, reader: int) -> None:
        line = os.read(reader, 65536).decode()
        self.loop.forget(reader)
        os.close(reader)
        if line:
            self.channel.send(do="preempted", line=line)

    def on_preempt(self, message: "Message") -> None:
        """Of this node or another: the processes find it in a file, and get the signal that the task asks for."""
        path = self.environment["BATCHTRAIN_PREEMPTION"]
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(message["line"])
        os.replace(path + ".new", path)
        if not self.preemption:
            return
        tree = Tree()
        for running in self.running.values():
            for pid in tree.programs(running.pid):
                send_signal(getattr(signal, self.preemption), pid)

    # output

    def resume(self, running: Running, stream: int) -> None:
        self.loop.watch(running.readers[stream], lambda: self.forward(running, stream))

    def forward(self, running: Running, stream: int) -> None:
        """Forward one read of the output of a process."""
        fd = running.readers[stream]
        try:
            data = os.read(fd, 16384)
        except BlockingIOError:
            return
        if not data:
            self.close_stream(running, stream)
            return
        self.keep(running, stream, data)
        self.channel.send_output(running.id, stream, data)
        self.credit -= len(data)
        if self.credit <= 0 and fd in self.loop.selector.get_map():
            self.loop.forget(fd)
            self.paused.append((running, stream))

    def keep(self, running: Running, stream: int, data: bytes) -> None:
        if running.files[stream] < 0:
            return
        room = MOST_KEPT - running.kept[stream]
        running.kept[stream] += len(data)
        try:
            os.write(running.files[stream], data[: max(room, 0)])
        except OSError as error:
            self.say(f"the output of a process is no longer kept in a file: {error.strerror}")
            os.close(running.files[stream])
            running.files[stream] = -1

    def close_stream(self, running: Running, stream: int) -> None:
        fd, file = running.readers[stream], running.files[stream]
        if fd in self.loop.selector.get_map():
            self.loop.forget(fd)
        os.close(fd)
        if file >= 0:
            os.close(file)
        running.readers[stream] = running.files[stream] = -1

    def drain(self, running: Running) -> None:
        """Forward what a dead process left in its pipes, which hold little; an orphan may continue to write."""
        for stream in (0, 1) * 8:
            if running.readers[stream] >= 0:
                self.forward(running, stream)

    def measure(self) -> None:
        """Send what the programs measured since the last look."""
        if not self.ending:
            for running in self.every:
                self.send_measured(running, 1 << 18)
            if not self.knows_network:
                self.tell_of_nccl(early=True)
            self.loop.later(MEASURES, self.measure)

    def send_measured(self, running: Running, most: int) -> None:
        """Whole lines of its file, up to so many bytes. A file that cannot be read is fetched after the end."""
        try:
            with open(running.metrics, "rb") as file:
                file.seek(running.measured)
                data = file.read(min(most, MOST_MEASURED - running.measured))
        except OSError:
            return
        data = data[: data.rfind(b"\n") + 1]
        running.measured += len(data)
        if data:
            self.channel.send(do="measured", id=running.id, lines=data.decode("utf-8", "replace"))

    # ends

    def on_children(self) -> None:
        self.report_ends()
        if self.ending:
            self.check_left()

    def report_ends(self) -> None:
        now = time.time()
        for pid, status in reap():
            running = self.running.pop(pid, None)
            if running is not None:
                self.drain(running)
                error, code = error_of(running.errors) if status else {}, exit_code(status)
                memory = self.full_memory() if signal_of(code) == signal.SIGKILL else ""
                ended = {"id": running.id, "code": code, "at": now, "ours": pid in self.signalled, "memory": memory}
                self.channel.send(do="ended", error=error, **ended)

    def full_memory(self) -> str:
        """Which memory the kernel found full since the last look, `cgroup` or `node`; empty for none."""
        before, self.killed = self.killed, killed_for_memory()
        return next((name for name in ("cgroup", "node") if self.killed[name] > before[name]), "")

    def on_sigterm(self, number: int) -> None:
        """A signal that ends the task may go to all its processes; the primary decides how much time the ranks have."""
        why = f"its supervisor was ended by {signal.Signals(number).name}"
        self.loop.later(QUICK, lambda: None if self.ending else self.give_up(why))

    def on_guard(self, guard: socket.socket) -> None:
        self.loop.forget(guard.fileno())
        self.give_up("its supervisor's guard was ended")

    def give_up(self, why: str) -> None:
        """End by itself; the primary must know before a process of another node fails because of it."""
        self.channel.send(do="lost", why=why)
        self.end(QUICK)

    def end(self, grace: float) -> None:
        """SIGTERM, and after the grace period SIGKILL for all remaining processes; a shorter period wins."""
        deadline = time.monotonic() + grace
        if self.ending and deadline >= self.deadline:
            return
        first, self.ending, self.deadline = not self.ending, True, deadline
        self.loop.later(grace, self.kill)
        if first:
            self.on_children()

    def check_left(self) -> None:
        """Signal each child of ours, including orphans, once."""
        tree = Tree()
        if not tree.below(os.getpid()) and not marked(self.mark):
            self.finish()
            return
        for child in tree.children.get(os.getpid(), ()):
            for pid in tree.to_tell(child) if child not in self.signalled else ():
                self.signalled.add(pid)
                send_signal(signal.SIGTERM, pid)
                send_signal(signal.SIGCONT, pid)

    def kill(self) -> None:
        if time.monotonic() < self.deadline:
            return
        left = left_of(self.mark)
        for pid in left:
            self.signalled.add(pid)
            send_signal(signal.SIGKILL, pid)
        if not left:
            self.on_children()
        elif time.monotonic() < self.deadline + 3:
            self.loop.later(0.01, self.kill)
        else:
            self.say("could not kill process {}".format(", ".join(map(str, left))))
            self.finish()

    def finish(self) -> None:
        """No process is left: send the last output and message. Then the primary closes the channel, or ends."""
        if not self.loop.running:
            return
        self.report_ends()  # of those that ended after the last look
        for running in self.every:
            self.drain(running)
            self.send_measured(running, MOST_MEASURED)
        self.tell_of_nccl()
        self.channel.send(do="done")
        deadline = time.monotonic() + 5
        while self.channel.open and self.channel._out and time.monotonic() < deadline:
            is_ready(self.channel.writer, select.POLLOUT, 0.2)
            self.channel.flush()
        self.loop.running = False

    def tell_of_nccl(self, early: bool = False) -> None:
        """Send what NCCL noted about its network on this node, if it did. A fault in here must not prevent the end.

        early: only if a process uses sockets, which the primary warns of at once.
        """
        folder = ranks_folder(self.directory)
        if not self.every or not any(name.startswith("nccl.") for name in names_in(folder)):
            return
        try:
            judging = verdict()
            heard = judging["read"](folder)
            networks = [process["network"] for process in heard]
            self.knows_network = all(networks) or judging["SLOW"] in networks
            if not early or judging["SLOW"] in networks:
                self.channel.send(do="nccl", heard=heard)
        except Exception as error:  # noqa: BLE001 - see above
            self.say(f"what NCCL noted in {folder} cannot be read: {error}")

    # heartbeats

    def beat(self) -> None:
        if self.ending:
            return
        now = time.monotonic()
        self.channel.beat()
        self.look_for_stopped(now)
        if now - self.channel.heard > self.heartbeat:
            self.give_up(f"nothing was heard of the primary for {self.heartbeat:g} s")
        self.loop.later(self.heartbeat / 6, self.beat)

    def look_for_stopped(self, now: float) -> None:
        """Report a process that has been in state T for long: the other processes would wait for it for ever."""
        tree = Tree() if self.running else None
        for pid, running in self.running.items():
            if tree and any(tree.state.get(member) == "T" for member in [pid, *tree.below(pid)]):
                running.stopped_since = running.stopped_since or now
                if now - running.stopped_since >= self.heartbeat / 3:
                    self.channel.send(do="stopped", id=running.id, seconds=round(now - running.stopped_since))
            else:
                running.stopped_since = 0.0
