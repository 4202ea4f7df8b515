#!/usr/bin/env bash
# Run by a person: `bash deploy/demo.sh [--keep ...]` runs the main job, the crawl queue over the
# installed Python packages. From any directory; the arguments are those of `cbp demo --help`.
# CBP_PORT or --port (default 8420) is the port of the service it starts.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

# The port that will be used is the one to check.
previous=""
for argument in "$@"; do
    case "$argument" in
        --port=*) export CBP_PORT="${argument#--port=}" ;;
    esac
    [ "$previous" != --port ] || export CBP_PORT="$argument"
    previous="$argument"
done
cbp_prepare port
exec "$CBP_VENV_PYTHON" -m controller.cli demo "$@"
