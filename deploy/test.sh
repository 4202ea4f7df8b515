#!/usr/bin/env bash
# Run by a person and by .ci/run: `bash deploy/test.sh` runs the default tests, and failed ones once more,
# alone (tests/gate); `--changed` runs those nearest to what differs from main, `--long` all, with the slow ones
# and those in quarantine; other arguments go to pytest.
# From any directory; paths in the arguments are relative to the repository. Without arguments three
# processes share the tests (tests/conftest.py says which stay together, and which are first): two
# processors have enough to do, since those that start services mostly wait for them. Their JVMs do
# with the first compiler: they live too short for what the second costs (a fifth of their time).
# Temporary files lie in memory where it has room: a tenth of the time (CBP_TEST_FOLDER=FOLDER: there).
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare
cd -- "$CBP_REPO"

MEMORY_KIB_MIN=8000000

test_folder() { # prints a new folder for the temporary files of the tests
    local parent="${CBP_TEST_FOLDER:-}" free=0 folder=""
    if [ -z "$parent" ]; then
        parent=/dev/shm
        free="$(df --output=avail -k "$parent" 2>/dev/null | tail -n 1)" || free=0
        [ "${free:-0}" -ge "$MEMORY_KIB_MIN" ] && [ -w "$parent" ] || parent="${TMPDIR:-/tmp}"
    fi
    folder="$(mktemp -d "$parent/cbp-tests.XXXXXX")"
    chmod 711 "$folder" # PostgreSQL, which does not run as root, has its data in it
    printf '%s\n' "$folder"
}

if [ $# != 0 ] && [ "$*" != --long ] && [ "$*" != --changed ]; then
    exec "$CBP_VENV_PYTHON" -m pytest "$@"
fi
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
TMPDIR="$(test_folder)"
export TMPDIR
trap 'rm -rf -- "$TMPDIR"' EXIT
# An empty value counts as none: `tests` is found in the current folder. Its pytest gets the value back.
PYTHONSAFEPATH="" "$CBP_VENV_PYTHON" -m tests.gate "$@"
