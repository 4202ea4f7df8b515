#!/usr/bin/env bash
# Run by a person and by .ci/run: `bash deploy/check.sh` runs lint, format, types and import contracts, and
# imports all tests; `bash deploy/check.sh types tests` only these. All of them always run, so that one start
# shows everything; it fails when one of them does.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare
cd -- "$CBP_REPO"

wanted=" ${*:-lint format types imports tests} "
failed=""
check() { # NAME, ARGUMENTS OF PYTHON...
    local name="$1"
    shift
    [ "$wanted" != "${wanted/ $name /}" ] || return 0
    printf -- '--- %s\n' "$name"
    "$CBP_VENV_PYTHON" "$@" || failed="$failed $name"
}

collecting="" log=""
case "$wanted" in
    *" tests "*)
        # Beside the others, which use one processor. What it compiles is kept even where the environment says
        # that Python keeps nothing: the processes of the tests need it, and each would compile it again.
        log="$(mktemp)"
        trap 'rm -f -- "$log"' EXIT
        PYTHONDONTWRITEBYTECODE="" "$CBP_VENV_PYTHON" -m pytest --collect-only -q >"$log" 2>&1 &
        collecting=$!
        ;;
esac

check lint -m ruff check .
check format -m ruff format --check .
check types -m mypy
check imports -c 'from importlinter.cli import lint_imports_command as run; run(["--no-logo", "--no-cache"])'
if [ -n "$collecting" ]; then
    printf -- '--- tests\n'
    if ! wait "$collecting"; then
        tail -n 60 -- "$log"
        failed="$failed tests"
    fi
fi
if [ -n "$failed" ]; then
    printf 'check.sh: failed:%s\n' "$failed" >&2
    exit 1
fi
printf 'check.sh: all passed\n'
