#!/usr/bin/env bash
# Run by a person and by .ci/run: `bash deploy/test.sh [pytest arguments]` runs the default tests.
# From any directory; paths in the arguments are relative to the repository. Without arguments two
# processes share the tests (tests/conftest.py says which stay together).
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare
cd -- "$CBP_REPO"
[ $# -gt 0 ] || set -- -n 2 --dist loadgroup
exec "$CBP_VENV_PYTHON" -m pytest "$@"
