"""The primary's side: connects the nodes, starts the gang, and waits for its end."""

import os
import signal
import socket
import sys
import time

from . import collected, stall
from .channel import Channel, Loop
from .environment import defaults_of, environment_of, missing_files, own_gpus
from .frameworks import load
from .node_facts import ranks_folder, verdict
from .placing import check_infiniband, plan
from .process_end import ECHOED, End, Failure, early, write
from .processes import ending, exit_code, quoted, reap, send_signal, spawn
from .screen import Screen
from .spec import HERE, QUICK, Gang, LaunchError, Message, Node, Process, Spec, Values
from .stream import Stream
from .supervisor import WINDOW, guarded

TOKEN = "BATCHTRAIN_RESULTS_TOKEN"


class Session:
    """The primary's connection to one node."""

    def __init__(self, primary: "Primary", index: int, address: str) -> None:
        self.primary = primary
        self.index = index
        self.address = address
        self.pid = 0
        self.channel: "Channel | None" = None
        self.node: "Node | None" = None
        self.done = False
        self.skew = 0.0
        """Its clock minus ours, in seconds."""
        self.stderr_end = b""
        """The end of stderr of its ssh."""
        self.stderr = -1
        self.credit = 0
        self.reason = "no answer"
        self.faults: "list[str]" = []
        """The faults that its preflight found."""
        self.unfit = False
        """Whether its hardware has one of them, so that another node can replace it."""
        self.heard: "list[Message]" = []
        """What NCCL noted about its network there."""

    def __str__(self) -> str:
        return str(self.node) if self.node else f"node {self.address}"

    def connect(self) -> None:
        """Start its supervisor, and send it the first message at once."""
        if self.index == 0:
            mine, theirs = socket.socketpair()
            self.pid = self.primary.fork_supervisor(theirs, mine)
            theirs.close()
            reader = mine.detach()
            writer = os.dup(reader)
        else:
            reader, writer = self.start_ssh()
        self.channel = Channel(self.primary.loop, reader, writer, greeted=False)
        self.channel.on_message = self.on_message
        self.channel.on_output = self.on_output
        self.channel.on_end = self.on_end
        self.channel.send(do="look", **self.primary.first_message(self.index))

    def connect_again(self) -> None:
        if not self.done and not self.primary.ending:
            self.connect()

    def start_ssh(self) -> "tuple[int, int]":
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        line = self.primary.ssh_line(self.address, self.index)
        stdio = (stdin[0], stdout[1], stderr[1])
        # A signal that ends the task may go to all its processes; the connections must survive it.
        self.pid = spawn(line, self.primary.environment, "/", stdio, [], on_sigterm=signal.SIG_IGN)
        for fd in (stdin[0], stdout[1], stderr[1]):
            os.close(fd)
        self.stderr = stderr[0]
        self.stderr_end = b""
        os.set_blocking(self.stderr, False)
        self.primary.loop.watch(self.stderr, self.on_stderr)
        return stdout[0], stdin[1]

    def on_stderr(self) -> None:
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return
        self.stderr_end = (self.stderr_end + data)[-2048:]
        if not data:
            self.close_stderr()

    def close_stderr(self) -> None:
        if self.stderr >= 0:
            self.primary.loop.forget(self.stderr)
            os.close(self.stderr)
            self.stderr = -1

    def on_message(self, message: "Message") -> None:
        getattr(self, "on_" + message.pop("do"))(message)

    def on_hello(self, message: "Message") -> None:
        skew = message["time"] - time.time()
        self.skew = skew if abs(skew) > 1 else 0.0  # a smaller one is that of the network
        self.node = Node(self.index, self.address, message)
        self.faults, self.unfit = message["faults"], message["unfit"]
        for text in message["warnings"]:
            self.primary.warn(text)
        if "error" in message:
            self.primary.tell_faults([self])
            if self.stderr >= 0:
                self.on_stderr()
            words = f" ({self.last_words()})" if self.last_words() else ""
            self.primary.fail(Failure(time.time(), "{}: {}{}".format(self, message["error"], words), 1))
        else:
            self.primary.stream.tell(node=f"n{self.index}", nodes=len(self.primary.sessions))  # it has joined
            self.primary.on_joined()

    def on_say(self, message: "Message") -> None:
        self.primary.screen.say("{}: {}".format(self, message["text"]))

    def on_ended(self, message: "Message") -> None:
        self.primary.on_error(message["id"], message["error"])
        self.primary.on_process_ended(
            message["id"], message["code"], message["at"] - self.skew, message["ours"], message["memory"]
        )

    def on_measured(self, message: "Message") -> None:
        data = message["lines"].encode()
        self.primary.stream.measured(message["id"], data)
        self.primary.keep(message["id"], collected.MEASURED, data)

    def on_sampled(self, message: "Message") -> None:
        if self.node:
            self.primary.stall.sampled(self.node.index, message["gpu_percent"])

    def on_stacks(self, message: "Message") -> None:
        if self.primary.stacks and self.node:
            self.primary.stacks.take(self.node.name, message["lines"])

    def on_stopped(self, message: "Message") -> None:
        self.primary.on_process_stopped(message["id"], message["seconds"])

    def on_lost(self, message: "Message") -> None:
        """The supervisor ends by itself, and reports its end later."""
        self.primary.lose(self, message["why"])

    def on_preempted(self, message: "Message") -> None:
        self.primary.on_preempted(self, message["line"])

    def on_nccl(self, message: "Message") -> None:
        self.heard = message["heard"]
        if not self.primary.ending:
            self.primary.judge_network()

    def on_done(self, message: "Message") -> None:
        """Nothing is left on the node; its process ends now."""
        self.done = True

    def on_output(self, process: int, stream: int, data: bytes) -> None:
        self.primary.screen.show(process, stream, data)
        self.primary.stream.printed(process, stream, data)
        self.primary.keep(process, collected.FILES[stream], data)
        self.primary.screen.take(self, len(data))
        self.primary.on_printed(process)

    def give_credit(self, size: int) -> None:
        self.credit += size
        if self.credit >= WINDOW // 4 and self.channel:
            self.channel.send(do="credit", bytes=self.credit)
            self.credit = 0

    def on_end(self) -> None:
        """The channel is closed; wait for its process, or kill it. Without a pid, the process ended first."""
        pid = self.pid
        if pid:
            self.primary.loop.later(2, lambda: self.on_late(pid))

    def on_late(self, pid: int) -> None:
        if self.pid == pid and not self.done:
            self.primary.lose(self, "its connection ended")
            self.cut()

    def on_process_ended(self, code: int) -> None:
        """ssh, or the local guard, has ended: all its output has arrived."""
        self.pid = 0
        if self.channel and self.channel.open:
            self.channel.drain()
        if self.channel:
            self.channel.close()
        if self.stderr >= 0:
            self.on_stderr()
            self.close_stderr()
        if self.done:
            self.primary.check_over()
        else:
            self.primary.on_node_gone(self, code, self.last_words())

    def cut(self) -> None:
        """Close the connection, so that the supervisor ends. The local one is not killed; its guard ends."""
        self.done = True
        if self.channel:
            self.channel.close()
        if self.pid and self.index:
            send_signal(signal.SIGKILL, self.pid)

    @property
    def greeted(self) -> bool:
        return bool(self.channel and self.channel.greeted)

    def why_not_here(self) -> str:
        if self.greeted:
            return "it answered ssh, but has not reported its hardware yet (does `processes_per_node` end there?)"
        return self.last_words() or self.reason

    def last_words(self) -> str:
        lines = [line for line in self.stderr_end.decode("utf-8", "replace").split("\n") if line.strip()]
        return lines[-1].strip() if lines else ""


class Primary:
    """Connects the nodes, starts the gang, and waits for its end."""

    def __init__(self, spec: Spec, hosts: "list[str]", environment: "Values") -> None:
        self.spec = spec
        self.environment = environment
        self.gang: "Gang | None" = None
        self.mark = "{:x}".format(int.from_bytes(os.urandom(8), "big"))
        self.loop = Loop()
        self.screen = Screen(self.loop)
        self.stream = Stream(self.loop, ranks_folder(os.getcwd()))
        self.collected = collected.Collected(ranks_folder(os.getcwd())) if spec.collects else None
        self.stall = stall.Stall(spec.stop_when)
        self.stacks: "stall.Stacks | None" = None
        self.sessions = [Session(self, index, host) for index, host in enumerate(hosts)]
        self.joined: "list[Session]" = []
        self.failures: "list[Failure]" = []
        self.early: "list[Failure]" = []
        """The ends with code 0 before any failure."""
        self.ends: "list[Failure]" = []
        """Those of the processes that this launcher ended."""
        self.errors: "dict[int, Message]" = {}
        self.alive: "dict[int, Process]" = {}
        self.ending = False
        self.finished = 0.0
        """The time at which all processes of deciding roles had ended well."""
        self.over = False
        self.warned_of_network = False
        self.ended_by = 0
        self.beaten = 0.0
        self.patience = 0.0
        self.framework = load(spec.framework)
        self.token = environment.pop(TOKEN, "")
        """Where the output is uploaded while the gang runs; the ranks do not get it."""

    def run(self) -> int:
        """The exit code of the gang."""
        self.loop.on(signal.SIGCHLD, lambda _: self.on_children())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.on(number, self.on_signal)
        self.stream.open()
        uploader = self.start_uploads()
        for session in self.sessions:
            session.connect()
        self.loop.later(self.spec.barrier, self.on_barrier)
        self.loop.later(self.spec.heartbeat / 6, self.beat)
        self.loop.run()
        if uploader:
            send_signal(signal.SIGKILL, uploader)  # the service uploads the whole files now
        return self.code()

    def start_uploads(self) -> int:
        """Start the program that uploads the output every minute; returns its process, or 0. It ends with this one,
        which has the other end of its stdin."""
        if not self.token:
            return 0
        reader, self.uploads = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        folder = self.environment.get("AZ_BATCH_TASK_DIR") or os.path.dirname(os.getcwd())
        line = [sys.executable, "-I", "-S", os.path.join(HERE, "uploads.py"), folder]
        line.append(self.environment.get("AZ_BATCH_TASK_ID", "task"))
        pid = spawn(line, dict(self.environment, **{TOKEN: self.token}), "/", (reader, null, null), [])
        for fd in (reader, null):
            os.close(fd)
        return pid

    # reaching the nodes

    def fork_supervisor(self, theirs: socket.socket, mine: socket.socket) -> int:
        """The primary's own node needs no ssh; the child keeps only the socket of the primary's descriptors."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            mine.close()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self.loop.selector.close()
            os.setsid()
            code = guarded(theirs.fileno(), os.dup(theirs.fileno()), f"{self.mark}-0")
        finally:
            os._exit(code)

    def ssh_line(self, address: str, index: int) -> "list[str]":
        """Uses the ssh of bt_use_ssh (gang.sh), which sets the port and accepts any host key, or the emulator's."""
        options = [f"ConnectTimeout={max(1, min(10, int(self.spec.barrier)))}", "ServerAliveInterval=5"]
        line = ["ssh", "-T"] + [word for option in options for word in ("-o", option)]
        return [*line, address, remote_text(HERE, self.environment, f"{self.mark}-{index}")]

    def first_message(self, index: int) -> "Message":
        return {
            "spec": self.spec.values,
            "environment": self.environment,
            "root": self.environment.get("AZ_BATCH_NODE_ROOT_DIR", ""),
            "directory": os.getcwd(),
            "index": index,
            "count": len(self.sessions),
            "heartbeat": self.spec.heartbeat,
            "emulated": "BATCHTRAIN_EMULATED_NODE" in self.environment,
            "near": self.environment.get("BATCHTRAIN_EMULATED_NODE", "container") != "container",
            "own": self.sessions[index].address,
            "hosts": ",".join(session.address for session in self.sessions),
            "now": int(time.time()),
        }

    def on_node_gone(self, session: Session, code: int, words: str) -> None:
        """Before the gang runs, ssh (255) is tried again; a supervisor that ended has reported why."""
        if self.ending:
            session.done = True
            self.check_over()
        elif session.node is None and code == 255:
            session.reason = words or "ssh ended with code 255"
            self.loop.later(QUICK, session.connect_again)
        else:
            self.lose(session, words or f"its supervisor{' or its ssh' * (session.index > 0)} {ending(code)}")

    def lose(self, session: Session, why: str) -> None:
        """A node is lost or ending; an elastic gang continues without it."""
        session.done = True
        left = sum(not other.done for other in self.joined)
        if self.ending:
            return
        if self.gang and session.index and left >= (self.spec.options.get("min_instances") or len(self.sessions)):
            self.screen.say(f"{session} is lost ({why}); the others continue")
            for process in [other for other in self.alive.values() if other.node is session.node]:
                del self.alive[process.id]
            self.check_finished()
        else:
            verb = "was lost" if self.gang else "did not join"
            self.fail(Failure(time.time(), f"{session} {verb}: {why}", 1))

    def on_barrier(self) -> None:
        """Name the nodes that have not joined, each with the reason of its last attempt."""
        missing = [session for session in self.sessions if session.node is None]
        if self.gang or self.ending or not missing:
            return
        reasons = {session.address: session.why_not_here() for session in missing}
        for address, reason in reasons.items():
            self.screen.say(f"{address}: {reason}")
        self.tell_faults(self.joined)
        least = self.spec.options.get("min_instances") or len(self.sessions)
        if len(self.joined) >= least and self.sessions[0].node:
            for session in missing:
                session.cut()
            self.begin()
            return
        names = sentence([session.address for session in missing])
        if any(session.greeted for session in missing):
            verb = "were not ready"
        elif all("Permission denied" in reason for reason in reasons.values()):
            verb = "accepted no ssh connection"
        else:
            verb = "did not answer ssh"
        text = f"{names} of {len(self.sessions)} {verb} in {self.spec.barrier:g} s"
        self.fail(Failure(time.time(), text, 1))

    def warn(self, text: str) -> None:
        """Say and record what may make the gang slow, but does not stop it."""
        self.screen.say("warning: " + text)
        self.stream.tell(warning=text)

    def hold(self, unfit: "list[str]") -> None:
        """Wait for a client that removes nodes with broken hardware: the service then starts the task on others."""
        if unfit and self.spec.replace:
            for address in unfit:
                self.stream.tell(unfit=address)
            self.screen.say(f"waits {self.spec.replace:g} s for a client that replaces {sentence(unfit)}")
        seconds = self.spec.replace if unfit else 0
        self.loop.later(seconds, lambda: self.fail(Failure(time.time(), UNFIT, 1)))

    def on_joined(self) -> None:
        self.joined = [session for session in self.sessions if session.node is not None]
        if len(self.joined) == len(self.sessions) and not self.ending:
            self.begin()

    def tell_faults(self, sessions: "list[Session]") -> bool:
        """Report the faults of the preflight on these nodes, and missing InfiniBand. Returns whether any exist."""
        faults = [fault for session in sessions for fault in session.faults]
        for session in sessions if faults else ():
            try:
                if session.node and session.node.interfaces:
                    check_infiniband(self.spec, session.node)
            except LaunchError as error:
                faults.append(f"preflight: {error}")
            session.faults = []
        for text in faults:
            self.screen.say(text)
        return bool(faults)

    # the gang

    def begin(self) -> None:
        unfit = [session.address for session in self.joined if session.unfit]
        if self.tell_faults(self.joined):
            self.hold(unfit)
            return
        nodes = [session.node for session in self.joined if session.node]
        for index, node in enumerate(nodes):
            node.index = index  # without the nodes that an elastic gang lost
        try:
            gang = plan(self.spec, nodes, self.framework)
            self.framework.serve(self.loop, gang)
            messages = [self.start_message(gang, node) for node in nodes]
        except LaunchError as error:
            self.fail(Failure(time.time(), str(error), 1))
            return
        self.gang = gang
        self.alive = {process.id: process for process in gang.processes}
        self.introduce(gang)
        self.stream.begin(gang)
        if self.collected:
            self.collected.begin(gang)
        self.stall.begin(gang)
        if self.stall.pause:
            self.loop.later(self.stall.pause, self.judge_stall)
        for at, session in enumerate(self.joined):
            if session.channel:
                session.channel.send(do="start", **messages[at])

    def introduce(self, gang: Gang) -> None:
        for process in gang.processes:
            name = str(process.rank) if process.rank >= 0 else process.label
            self.screen.prefixes[process.id] = f"[{process.node.index}:{name}] ".encode()
        for node in gang.nodes:
            labels = [process.label for process in gang.processes if process.node is node]
            what = ", ".join(labels) or "nothing to run"
            self.screen.say(f"node {node.index} is {node.name} ({node.address}): {what}")
            if self.spec.rdma and not node.infiniband:
                self.screen.say(f"{node} is emulated and has no InfiniBand: its processes talk over tcp")
            for name, path in [] if node.emulated else missing_files(self.spec.environment, node):
                advice = "take an image for its size, such as ubuntu-hpc"
                self.warn(f"{node} has no {path}, so {name} is not set: {advice}")

    def start_message(self, gang: Gang, node: Node) -> "Message":
        slots = gang.slots(node)
        return {
            "before": self.spec.pre_execution,
            "bind": self.spec.binding == "auto" and not node.emulated,
            "slots": [
                (own_gpus(gang, process) or ["-1"])[0] if process.role.gpus and node.gpus else "-1" for process in slots
            ],
            "processes": [
                {
                    "id": process.id,
                    "command": self.framework.command(gang, process),
                    "environment": environment_of(gang, process),
                    "defaults": defaults_of(gang, process),
                    "slot": process.slot,
                    "file": process.file,
                }
                for process in gang.processes
                if process.node is node
            ],
        }

    def keep(self, identity: int, ending: str, data: bytes) -> None:
        """Something that a process printed or measured."""
        self.stall.note(identity)
        if self.collected:
            self.collected.take(identity, ending, data)

    def judge_stall(self) -> None:
        if self.ending:
            return
        first = self.stall.first(self.alive)
        if first is None:
            self.loop.later(self.stall.pause, self.judge_stall)
            return
        process, words = first
        end = End(process.label, process.rank, process.node, stall.CODE, words, cause="stalled")
        stalled = Failure(time.time(), end, stall.CODE, process.id)
        channels = [session.channel for session in self.sessions if session.channel and session.channel.open]
        self.stacks = stall.Stacks(len(channels), process, lambda calls: self.fail_stalled(stalled, calls))
        for channel in channels:
            channel.send(do="stacks", seconds=stall.Stacks.SECONDS)
        self.loop.later(stall.Stacks.SECONDS + 1, self.stacks.end)

    def fail_stalled(self, stalled: Failure, calls: "list[str]") -> None:
        """The processes stand still, and what they do is known. The gang may have ended meanwhile."""
        if not self.ending:
            stalled.calls = calls
            self.fail(stalled)

    # ends

    def on_process_ended(self, identity: int, code: int, at: float, ours: bool, memory: str) -> None:
        process = self.alive.pop(identity, None)
        self.stall.note(identity)
        if process is None:
            return
        if ours:
            end = End(process.label, process.rank, process.node, code, by_launcher=True)
            self.ends.append(Failure(at, end, code, identity))
            return
        if code == 0 and all(at < failure.at for failure in self.failures):
            self.early.append(early(process, at))
        if code == 0 or (self.finished and not process.role.decides):
            self.check_finished()
            return
        failure = self.failure(process, ended=True) if code == 1 else None
        self.fail_by(failure or End(process.label, process.rank, process.node, code, memory=memory), at, identity)

    def on_error(self, identity: int, error: "Message") -> None:
        """What a program wrote about its exception; torchrun's processes may have failed before torchrun ends."""
        if error:
            self.errors[identity] = error

    def on_printed(self, identity: int) -> None:
        process = self.alive.get(identity)
        end = self.failure(process, ended=False) if process and not self.ending else None
        if end:
            self.fail_by(end, time.time(), identity)

    def failure(self, process: Process, ended: bool) -> "End | None":
        """A failure that the framework's own launcher reports about a process that it started."""
        if self.gang is None:
            return None
        return self.framework.failure(self.gang, process, self.screen.last[process.id], ended)

    def on_preempted(self, session: Session, line: str) -> None:
        """Tells every node, because the gang ends with this one."""
        self.screen.say(f"Azure announces the preemption of {session}")
        for other in self.sessions:
            if other.channel and other.channel.open:
                other.channel.send(do="preempt", line=line)

    def on_process_stopped(self, identity: int, seconds: int) -> None:
        process = self.alive.get(identity)
        if process is not None:
            words = f"has been stopped for {seconds} s (SIGSTOP, state T)"
            end = End(process.label, process.rank, process.node, 128 + signal.SIGSTOP, words)
            self.fail_by(end, time.time(), identity)

    def check_finished(self) -> None:
        """The gang is complete when all processes that decide have ended well; the others get a moment to end."""
        if self.ending or any(process.role.decides for process in self.alive.values()):
            return
        now, usual = time.monotonic(), self.framework.linger
        self.finished = self.finished or now
        lingers = [usual if process.role.linger is None else process.role.linger for process in self.alive.values()]
        left = self.finished + max(lingers, default=0) - now
        if left <= 0:
            self.end(QUICK)
        else:
            self.loop.later(left, self.check_finished)

    def fail_by(self, end: End, at: float, identity: int) -> None:
        self.fail(Failure(at, end, end.code, identity))

    def fail(self, failure: Failure) -> None:
        failure.printed = self.screen.last_lines(failure.process) if failure.process >= 0 else []
        self.failures.append(failure)
        self.end(QUICK)

    def end(self, grace: float) -> None:
        """Tell all nodes to end their processes; each reports when none is left."""
        if self.ending:
            return
        self.ending = True
        for session in self.sessions:
            if session.node is None:
                session.cut()
            elif session.channel and session.channel.open:
                session.channel.send(do="end", grace=grace)
        self.loop.later(grace + 3.5, self.give_up)
        self.check_over()

    def give_up(self) -> None:
        for session in self.sessions:
            if session.pid:
                if not session.done:
                    self.screen.say(f"{session} does not say that its processes are gone")
                session.cut()
                send_signal(signal.SIGKILL, session.pid)
                session.pid = 0
        self.check_over()

    def check_over(self) -> None:
        """When no node has processes left: print the last lines, and exit."""
        if self.over or not self.ending or any(session.pid for session in self.sessions):
            return
        self.over = True
        self.screen.end_lines()
        self.stream.end()
        self.judge_network()
        self.tell_cause()
        self.patience = time.monotonic() + 3
        self.leave()

    def judge_network(self) -> None:
        """Tell which network NCCL uses: at the end, and at once if it is slow. A warning comes once."""
        heard = [(str(session), session.heard) for session in self.joined if session.heard]
        for sentence, is_warning in verdict()["judge"](heard) if heard else ():
            if is_warning and not self.warned_of_network:
                self.warned_of_network = True
                self.warn(sentence)
            elif not is_warning and self.over:
                self.screen.say(sentence)

    def leave(self) -> None:
        """Exit when all output is written; a reader that has stopped reading is not waited for."""
        self.screen.show_partial()
        for sink in set(self.screen.sinks):
            sink.flush()
        if self.screen.is_empty() or time.monotonic() > self.patience:
            self.loop.running = False
        else:
            self.loop.later(0.01, self.leave)

    def tell_cause(self) -> None:
        if self.ended_by:
            self.screen.say(f"ended by {signal.Signals(self.ended_by).name}")
            return
        if not self.failures:
            return
        self.failures.sort(key=lambda failure: failure.at)
        for failure in self.failures:
            failure.error = self.errors.get(failure.process, {})
        try:
            write(ranks_folder(os.getcwd()), self.failures + self.early + self.ends)
            if self.stacks:
                self.stacks.write(ranks_folder(os.getcwd()))
        except OSError as error:
            self.screen.say(f"the ends of the ranks are kept in no file: {error}")
        cause = self.failures[0]
        for end in self.early[:1]:
            self.screen.say(str(end.what))
        self.screen.say(str(cause.what))
        on_screen = 0 if self.screen.has_passed(cause.process) else len(cause.printed)
        for line in cause.lines[on_screen:][-ECHOED:]:
            self.screen.say("    " + line)

    def code(self) -> int:
        return 128 + self.ended_by if self.ended_by else self.failures[0].code if self.failures else 0

    # signals and clocks

    def on_signal(self, number: int) -> None:
        """On the second signal, or if the gang is already ending, the ranks get no more time."""
        if not self.ending:
            self.ended_by = number
            self.end(self.spec.grace)
            return
        for session in self.sessions:
            if session.channel and session.channel.open:
                session.channel.send(do="end", grace=0)

    def on_children(self) -> None:
        for pid, status in reap():
            for session in self.sessions:
                if session.pid == pid:
                    session.on_process_ended(exit_code(status))

    def beat(self) -> None:
        """A silent node is lost, unless this process could not hear it, because it, or the machine, was stopped."""
        now, last = time.monotonic(), self.beaten
        self.beaten = now
        for session in self.sessions:
            if session.channel and session.channel.open:
                session.channel.beat()
                silent = now - session.channel.heard > self.spec.heartbeat > now - last
                if session.node and not session.done and silent:
                    self.lose(session, f"nothing was heard of it for {self.spec.heartbeat:g} s")
                    session.cut()
        self.loop.later(self.spec.heartbeat / 6, self.beat)


UNFIT = "nothing was started: the nodes have faults (`preflight: false` in multi_instance skips this check)"


def sentence(names: "list[str]") -> str:
    """ "node a", "nodes a and b", "nodes a, b and c"."""
    if len(names) == 1:
        return "node " + names[0]
    return "nodes {} and {}".format(", ".join(names[:-1]), names[-1])


FITS = "import sys, json, selectors; sys.exit(sys.version_info < (3, 6))"


def remote_text(home: str, environment: "Values", mark: str) -> str:
    """The command that ssh runs on another node: this package, with the AZ_BATCH_* values of the node, by the same
    Python.

    Emulated nodes share a file system, and each has its own root; `home` is below that of the primary.
    """
    root = environment.get("AZ_BATCH_NODE_ROOT_DIR", "")
    text = """
here={home}; root={root}
case $BATCHTRAIN_EMULATED_NODE in /*) here=$BATCHTRAIN_EMULATED_NODE${{here#"$root"}} ;; esac
[ ! -r "$here/environment" ] || . "$here/environment"
[ -r "$here/launch/__main__.py" ] || {{ echo "$here/launch is not on this node" >&2; exit 3; }}
for python in {python} python3 python; do
  ! "$python" -I -S -c {fits} >/dev/null 2>&1 || exec "$python" -I -S -B "$here/launch" node {mark}
done
echo "there is no Python 3.6 or later on this node: neither {python} nor python3 on PATH ($PATH)" >&2; exit 127"""
    script = text.format(
        home=quoted(home), root=quoted(root), python=quoted(sys.executable or "python3"), mark=mark, fits=quoted(FITS)
    )
    return "exec /bin/sh -c " + quoted(script)
