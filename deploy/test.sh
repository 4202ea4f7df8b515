#!/usr/bin/env bash
# Run by a person and by .ci/run: `bash deploy/test.sh [pytest arguments]` runs the default tests.
# From any directory; paths in the arguments are relative to the repository.
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare
cd -- "$CBP_REPO"
exec "$CBP_VENV_PYTHON" -m pytest "$@"
