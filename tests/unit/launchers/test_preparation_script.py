"""The preparation of a node, run by a real bash with stand-ins for the tools that change a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain import runtime
from batchtrain.launchers import preparation
from batchtrain.launchers.preparation import Fstab, Image, Login, Moved, Preparation, Sif
from tests import containers

Done = subprocess.CompletedProcess[str]

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="a script of Linux")]

FLAKY = """#!/bin/bash
# Fails as often as "$STAGE/fails" says, and writes down what it was asked.
printf '%s\\n' "$(basename "$0") $*" >> "$STAGE/asked"
left=$(cat "$STAGE/fails" 2>/dev/null || echo 0)
[ "$left" = 0 ] || { echo $((left - 1)) > "$STAGE/fails"; exit 1; }
"""
NO_IMAGES = FLAKY.replace("\nprintf", '\n[ "$1" != image ] || exit 1\nprintf', 1)
"""A docker whose engine has none of the images yet."""
APPTAINER = """#!/bin/bash
printf '%s\\n' "apptainer $*" >> "$STAGE/asked"
case "$1 $2" in
  "pull --force") echo image > "$3";;
  "registry login") cat > "$STAGE/stdin";;
  "key import") cat "$3" > "$STAGE/key";;
  "verify --local") echo '{ "Fingerprint": "AB12CD" }';;
esac
"""

COUNTED = """
touch "$STAGE/now/$$"
[ "$(ls "$STAGE/now" | wc -l)" -le 4 ] || touch "$STAGE/many"
sleep 0.1
rm "$STAGE/now/$$"
"""


class Stage:
    """A directory that plays the node: tools first on PATH, a shared directory, what was asked of the tools."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir()
        (root / "wd").mkdir()
        self.environment = {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "STAGE": str(root), "HOME": str(root),
            "BATCHTRAIN_RETRY_SECONDS": "0", "AZ_BATCH_NODE_SHARED_DIR": str(root / "shared dir"),
            "AZ_BATCH_NODE_MOUNTS_DIR": str(root / "mounts"),
        }  # fmt: skip

    def tool(self, name: str, text: str = FLAKY) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def fails(self, times: int) -> None:
        (self.root / "fails").write_text(str(times))

    @property
    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, text: str, **environment: str) -> Done:
        environment = {**self.environment, **environment}
        command = ["bash", "-c", text]
        return subprocess.run(
            command, cwd=self.root / "wd", env=environment, capture_output=True, text=True, check=False
        )

    def prepare(self, is_ready: bool = True, /, *, variables: Mapping[str, str] = {}, **parts: Any) -> Done:
        """Runs our part of a preparation. is_ready: whether it is to succeed."""
        done = self.run(preparation.own(Preparation(**parts)), **variables)
        assert done.returncode == (0 if is_ready else 1), done.stderr
        return done


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def start(stage: Stage, script: str, own: str = "") -> Done:
    """As Batch runs it: the command line, with the texts in its environment."""
    return stage.run(preparation.LINUX, **{preparation.SCRIPT: script, preparation.OWN: own})


# --- a person's lines and ours --------------------------------------------------------------------------------------


def test_our_part_runs_between_the_lines_and_cannot_change_their_shell(stage: Stage) -> None:
    script = preparation.linux(("A=1", "cd /"), ('echo "$A $PWD ${B-unset}"',), prepares=True)
    done = start(stage, script, "set -u\nB=2\necho ours in $PWD")
    assert done.stdout.splitlines() == ["ours in /", "1 / unset"]


def test_the_first_line_that_fails_ends_the_preparation_with_its_code(stage: Stage) -> None:
    done = start(stage, preparation.linux(("(exit 7)", "echo never"), (), prepares=True), "echo never")
    assert (done.returncode, done.stdout) == (7, "")


def test_our_failure_ends_the_preparation_even_where_lines_go_on_after_failures(stage: Stage) -> None:
    done = start(stage, preparation.linux(("set +e",), ("echo never",), prepares=True), "exit 9")
    assert (done.returncode, done.stdout) == (9, "")


def test_any_quotes_of_a_person_survive(stage: Stage) -> None:
    done = start(stage, preparation.linux(("""echo 'a "b" $c' # it's""", 'echo "d"'), (), prepares=False))
    assert done.stdout == 'a "b" $c\nd\n'


# --- images ---------------------------------------------------------------------------------------------------------


def test_images_are_pulled_with_retries(stage: Stage) -> None:
    stage.tool("docker", NO_IMAGES)
    stage.fails(2)
    stage.prepare(docker_images=(Image("a/b:1"),))
    assert stage.asked == ["docker pull --quiet a/b:1"] * 3


def test_an_image_that_never_comes_is_named_after_the_last_try(stage: Stage) -> None:
    stage.tool("docker", NO_IMAGES)
    stage.fails(99)
    (stage.root / "tmp").mkdir()
    done = stage.prepare(False, docker_images=(Image("a/b:1"),), variables={"TMPDIR": str(stage.root / "tmp")})
    assert not list((stage.root / "tmp").iterdir())
    assert done.stderr.splitlines()[-1].startswith("batchtrain: these images cannot be pulled: a/b:1. Are the names")
    assert len(stage.asked) == preparation.TRIES


def test_an_answer_that_will_not_change_is_not_asked_for_again(stage: Stage) -> None:
    stage.tool("docker", NO_IMAGES + 'echo "manifest for $3 not found: manifest unknown" >&2; exit 1\n')
    done = stage.prepare(False, docker_images=(Image("a/b:1"),))
    assert stage.asked == ["docker pull --quiet a/b:1"]
    assert done.stderr.splitlines()[0] == "manifest for a/b:1 not found: manifest unknown"


def test_many_images_are_pulled_all_and_not_all_at_once(stage: Stage) -> None:
    (stage.root / "now").mkdir()
    stage.tool("docker", NO_IMAGES + COUNTED)
    images = tuple(Image(f"image:{number}") for number in range(10))
    stage.prepare(docker_images=images)
    assert sorted(stage.asked) == sorted(f"docker pull --quiet {image.name}" for image in images)
    assert not (stage.root / "many").exists()


def test_an_image_that_the_engine_has_is_not_asked_for_again(stage: Stage) -> None:
    stage.tool("docker")
    stage.prepare(docker_images=(Image("a/b:1"),))
    assert stage.asked == ["docker image inspect a/b:1"]


SECOND_ONLY = FLAKY + 'case "$1 $*" in pull*second* | tag*) ;; *) echo no route >&2; exit 1 ;; esac\n'
"""An engine without images; only the second registry gives one."""


def test_an_image_that_its_registry_refuses_comes_from_the_second_one_at_the_first_try(stage: Stage) -> None:
    stage.tool("docker", SECOND_ONLY)
    done = stage.prepare(docker_images=(Image("a/b:1", "second/a/b:1"),))
    said = "batchtrain: a/b:1 cannot be had from its own registry; this node takes second/a/b:1"
    assert done.stderr.splitlines() == ["no route", said]
    assert stage.asked[-3:] == [
        "docker pull --quiet a/b:1", "docker pull --quiet second/a/b:1", "docker tag second/a/b:1 a/b:1"
    ]  # fmt: skip


def test_a_copy_by_its_digest_keeps_its_own_name(stage: Stage) -> None:
    stage.tool("docker", SECOND_ONLY)
    stage.prepare(docker_images=(Image("a@sha256:1", "second/a@sha256:1"),))
    assert stage.asked[-1] == "docker pull --quiet second/a@sha256:1"


def test_a_copy_that_the_engine_has_is_not_asked_for_again(stage: Stage) -> None:
    stage.tool("docker", FLAKY + '[ "$*" = "image inspect second/a@sha256:1" ]\n')
    stage.prepare(docker_images=(Image("a@sha256:1", "second/a@sha256:1"),))
    assert len(stage.asked) == 2


def test_an_image_that_neither_registry_has_is_named_with_its_copy(stage: Stage) -> None:
    stage.tool("docker", NO_IMAGES)
    stage.fails(99)
    done = stage.prepare(False, docker_images=(Image("a/b:1", "second/a/b:1"), Image("c")))
    last = done.stderr.splitlines()[-1].removeprefix("batchtrain: these images cannot be pulled: ")
    assert last.partition(". ")[0] in ("a/b:1 (nor second/a/b:1),c", "c,a/b:1 (nor second/a/b:1)")
    assert len(stage.asked) == 3 * preparation.TRIES


@pytest.mark.docker
@pytest.mark.slow
def test_an_engine_takes_the_copy_of_an_image_whose_registry_is_dead_and_names_one_that_is_nowhere(
    stage: Stage, image: str, registry: containers.Registry
) -> None:
    host = {"DOCKER_HOST": os.environ["DOCKER_HOST"]} if "DOCKER_HOST" in os.environ else {}
    login = ("login", "--username", registry.username, "--password-stdin", registry.server)
    containers.docker("--config", f"{stage.root}/.docker", *login, input=registry.password)
    copy, name, nowhere = registry.push(f"{image}-base", "copies/a:1"), "127.0.0.1:1/a:1", f"{registry.server}/none:1"
    try:
        done = stage.run(preparation.own(Preparation(docker_images=(Image(name, copy), Image(nowhere)))), **host)
        assert containers.docker("image", "inspect", "--format", "{{.Id}}", name)
    finally:
        containers.docker("rmi", name, copy, check=False)
    assert f"batchtrain: {name} cannot be had from its own registry; this node takes {copy}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"batchtrain: these images cannot be pulled: {nowhere}. ")
    assert "given up" not in done.stderr


@pytest.mark.parametrize("fallback", [False, True])
def test_a_sign_in_that_fails_stops_a_node_without_a_second_registry(stage: Stage, *, fallback: bool) -> None:
    stage.tool("apptainer", FLAKY + '[ "$1" != registry ]\n')
    logins = (Login("r.io", "me", "PASSWORD"),)
    done = stage.prepare(fallback, logins=logins, fallback=fallback, variables={"PASSWORD": "hunter2"})
    assert "batchtrain: the registry r.io takes no sign-in of me" in done.stderr
    assert ("images have a second registry, so this continues" in done.stderr) is fallback
    assert "hunter2" not in done.stderr


# --- Apptainer's images ---------------------------------------------------------------------------------------------


def test_an_apptainer_image_is_pulled_once_and_kept(stage: Stage) -> None:
    stage.tool("apptainer", APPTAINER)
    for _ in range(2):
        stage.prepare(images=(Sif("docker://a/b:1"),))
    assert sum(line.startswith("apptainer pull") for line in stage.asked) == 1
    (file,) = (stage.root / "shared dir" / "batchtrain" / "apptainer").glob("*.sif")
    assert str(file).endswith(preparation.image_path("docker://a/b:1").rpartition("/")[2])


def test_an_apptainer_image_comes_from_the_second_registry_where_its_own_refuses(stage: Stage) -> None:
    second_only = 'case "$4" in *second*) echo image > "$3" ;; *) exit 1; esac'
    stage.tool("apptainer", APPTAINER.replace('echo image > "$3"', second_only))
    done = stage.prepare(images=(Sif("docker://a:1", copy="docker://second/a:1"),))
    assert "this node takes docker://second/a:1" in done.stderr
    (file,) = (stage.root / "shared dir" / "batchtrain" / "apptainer").glob("*.sif")
    assert str(file).endswith(preparation.image_path("docker://a:1").rpartition("/")[2])


def test_a_signed_image_is_kept_only_when_that_key_signed_it(stage: Stage) -> None:
    stage.tool("apptainer", APPTAINER)
    stage.prepare(images=(Sif("library://x/y", "ab 12cd", "KEY"),), variables={"KEY": "the key"})
    assert (stage.root / "key").read_text() == "the key\n"
    done = stage.prepare(False, images=(Sif("library://x/z", "FFFF", "KEY"),), variables={"KEY": "the key"})
    assert done.stderr == "batchtrain: library://x/z is not signed by FFFF\n"
    kept = [path.name for path in (stage.root / "shared dir" / "batchtrain" / "apptainer").glob("*.sif")]
    assert len(kept) == 1
    assert not any("key pull" in line for line in stage.asked)


def test_a_key_without_a_file_is_taken_from_the_key_server(stage: Stage) -> None:
    stage.tool("apptainer", APPTAINER)
    assert stage.prepare(images=(Sif("library://x/y", "AB 12CD"),)).stderr == ""
    assert "apptainer key pull AB12CD" in stage.asked


@pytest.mark.parametrize(("server", "address"), [("r.io", "r.io"), ("hub", "docker.io")])
def test_a_password_goes_to_the_registry_by_stdin_alone(stage: Stage, server: str, address: str) -> None:
    stage.tool("apptainer", APPTAINER)
    stage.prepare(logins=(Login(server, "u ser", "PASSWORD"),), variables={"PASSWORD": "hunter2"})
    assert (stage.root / "stdin").read_text() == "hunter2"
    assert stage.asked[-1] == f"apptainer registry login --username u ser --password-stdin docker://{address}"


# --- mounts, groups, drivers, data ----------------------------------------------------------------------------------


def moved_etc(text: str, stage: Stage) -> str:
    return text.replace("/etc/", f"{stage.root}/etc/")


def test_a_file_system_is_entered_once_and_mounted_below_the_mounts(stage: Stage) -> None:
    for name in ("mount", "mountpoint"):
        stage.tool(name)
    stage.tool("mountpoint", "#!/bin/sh\nexit 1\n")
    (stage.root / "etc").mkdir()
    text = moved_etc(preparation.own(Preparation(mounts=(Fstab("v", "s:/x", "lustre", "noatime", 0, 2),))), stage)
    for _ in range(2):
        done = stage.run(text)
        assert done.returncode == 0, done.stderr
    at = stage.root / "mounts" / "v"
    assert (stage.root / "etc" / "fstab").read_text() == f"s:/x {at} lustre noatime 0 2\n"
    assert stage.asked == [f"mount {at}"] * 2


def test_a_file_system_that_cannot_be_mounted_is_named(stage: Stage) -> None:
    stage.tool("mount", "#!/bin/sh\nexit 32\n")
    stage.tool("mountpoint", "#!/bin/sh\nexit 1\n")
    (stage.root / "etc").mkdir()
    done = stage.run(moved_etc(preparation.own(Preparation(mounts=(Fstab("v", "s:/x", "lustre"),))), stage))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "batchtrain: the volume v (s:/x) cannot be mounted"


@pytest.mark.parametrize(
    ("before", "after"),
    [("docker:x:9:", "docker:x:9:al"), ("docker:x:9:bo", "docker:x:9:bo,al"), ("docker:x:9:al", "docker:x:9:al")],
)
def test_a_login_that_is_not_there_yet_is_put_into_the_group(stage: Stage, before: str, after: str) -> None:
    stage.tool("getent")
    (stage.root / "etc").mkdir()
    group = stage.root / "etc" / "group"
    group.write_text(f"root:x:0:\n{before}\ndockers:x:10:\n")
    done = stage.run(moved_etc(preparation.own(Preparation(docker_user="al")), stage))
    assert done.returncode == 0, done.stderr
    assert group.read_text() == f"root:x:0:\n{after}\ndockers:x:10:\n"


def test_each_process_up_to_the_agent_may_lock_memory(stage: Stage) -> None:
    stage.tool("prlimit")
    stage.tool("awk", '#!/bin/bash\necho "${2//[!0-9]/}" >>"$STAGE/parents"; exec /usr/bin/awk "$@"\n')
    assert stage.prepare(locks_memory=True).stderr == ""
    ancestors = (stage.root / "parents").read_text().split()
    assert str(os.getpid()) == ancestors[0]
    assert str(os.getppid()) == ancestors[1]
    assert stage.asked == [f"prlimit --pid {process} --memlock=unlimited:unlimited" for process in ancestors]


def test_a_limit_that_stays_is_said_and_an_emulated_node_keeps_its_machines(stage: Stage) -> None:
    stage.tool("prlimit", "#!/bin/sh\nexit 1\n")
    said = f"batchtrain: the limit of locked memory of process {os.getpid()} stays as it is"
    assert stage.prepare(locks_memory=True).stderr.startswith(said)
    assert stage.prepare(locks_memory=True, variables={"BATCHTRAIN_EMULATED_NODE": "/n"}).stderr == ""


HOSTS = "10.0.0.20,10.0.0.5"


def test_the_service_of_a_node_joins_the_imex_domain_that_a_gang_asks_for(stage: Stage) -> None:
    for name in ("systemctl", "mknod"):
        stage.tool(name)
    devices, task = stage.root / "devices", stage.root / "task/.batchtrain"
    for folder in ("etc/systemd/system", "etc/nvidia-imex", "local/sbin", "task/.batchtrain"):
        (stage.root / folder).mkdir(parents=True)
    devices.write_text("Character devices:\n234 nvidia-caps-imex-channels\n")
    channels = f"{stage.root}/nvidia-caps-imex-channels"

    def moved(text: str) -> str:
        text = moved_etc(text, stage).replace("/dev/nvidia-caps-imex-channels", channels)
        return text.replace("/proc/devices", str(devices)).replace("/usr/local/sbin", f"{stage.root}/local/sbin")

    done = stage.run(moved(preparation.own(Preparation(joins_imex=True))))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"mknod -m 0666 {channels}/channel0 c 234 0" in stage.asked
    assert "systemctl enable --now batchtrain-imex.path" in stage.asked
    (Path(channels) / "channel0").touch()
    for name, text in (("gang.sh", runtime.read("gang.sh")), ("node.sh", runtime.read("node.sh"))):
        (task / name).write_text(moved(text.decode()))
    asked = stage.root / "shared dir/batchtrain/imex/asked"
    gang = {"AZ_BATCH_TASK_SHARED_DIR": str(task.parent), "AZ_BATCH_HOST_LIST": HOSTS, "BATCHTRAIN_IMEX_SECONDS": "0"}
    joined = f"source {task}/gang.sh && bt_join_imex && bash {task}/node.sh imex {HOSTS}"
    assert stage.run(joined, **gang).stdout == ""
    service = (stage.root / "etc/systemd/system/batchtrain-imex.service").read_text()
    assert stage.run(service.partition("ExecStart=")[2]).returncode == 0
    assert (stage.root / "etc/nvidia-imex/nodes_config.cfg").read_text() == "10.0.0.5\n10.0.0.20\n"
    assert stage.asked[-2:] == ["systemctl stop nvidia-imex", "systemctl start nvidia-imex"]
    assert stage.run(joined, **gang).stdout == "imex\n"
    assert not [*asked.iterdir()]
    other = "10.0.0.5,10.0.0.6"
    assert stage.run(joined.replace(HOSTS, other), **{**gang, "AZ_BATCH_HOST_LIST": other}).stdout == ""
    assert (asked / "nodes").read_text() == "10.0.0.5\n10.0.0.6\n"


def test_a_driver_is_installed_once(stage: Stage) -> None:
    for name in ("gcc", "make", "apt-get", "modprobe", "nvidia-smi"):
        stage.tool(name)
    stage.tool("curl", '#!/bin/bash\necho "echo installed >> \\"$STAGE/installed\\"" > nvidia-driver.run\n')
    text = preparation.own(Preparation(nvidia_driver="https://d")).replace("/var/lib", f"{stage.root}/var")
    for _ in range(2):
        done = stage.run(text)
        assert done.returncode == 0, done.stderr
    assert (stage.root / "installed").read_text() == "installed\n"


def test_the_emulator_installs_no_driver_and_says_so(stage: Stage) -> None:
    stage.tool("apt-get")
    done = stage.prepare(nvidia_driver="https://d", variables={"BATCHTRAIN_EMULATED_NODE": "container"})
    assert (done.stdout, stage.asked) == ("no driver is installed: emulated GPUs need none\n", [])


def test_a_package_is_tried_again_while_its_mirror_fails(stage: Stage) -> None:
    stage.tool("apt-get")
    stage.fails(1)
    text = preparation.own(Preparation(runtimes=("runc",))).replace("command -v runc", "false")
    done = stage.run(text)
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(" ")[2] for line in stage.asked] == ["update", "update", "runc"]


def test_data_is_moved_to_where_it_belongs_and_again_after_a_reboot(stage: Stage) -> None:
    for content in ("one", "two"):
        (stage.root / "wd/.batchtrain/input/0/sub").mkdir(parents=True)
        (stage.root / "wd/.batchtrain/input/0/sub/file").write_text(content)
        stage.prepare(moves=(Moved(".batchtrain/input/0", "$AZ_BATCH_NODE_SHARED_DIR/my data"),))
        assert (stage.root / "shared dir/my data/sub/file").read_text() == content
    assert not (stage.root / "wd/.batchtrain/input/0").exists()


def test_every_part_at_once_is_sound_shell() -> None:
    todo = Preparation(
        mounts=(Fstab("v", "s:/x", "lustre"),), nvidia_driver="https://d/x y", docker_user="a'l",
        runtimes=("runc", "kata_containers", "singularity"), docker_images=(Image("a"), Image("b c'd", "c d'e")),
        images=(Sif("docker://a", copy="docker://b c/a"), Sif("library://b", "AB", "K")),
        logins=(Login("hub", "u'v", "P"),), moves=(Moved("x", "$A/y"),),
    )  # fmt: skip
    done = subprocess.run(["bash", "-n"], input=preparation.own(todo), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
