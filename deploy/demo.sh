#!/usr/bin/env bash
# Run by a person: `bash deploy/demo.sh [--keep ...]` runs the main job, the crawl queue over the
# installed Python packages. From any directory; the arguments are those of `cbp demo --help`.
# CBP_PORT (default 8420) is the port of the service it starts.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare port
exec "$CBP_VENV_PYTHON" -m controller.cli demo "$@"
