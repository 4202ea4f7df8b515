#!/usr/bin/env bash
# Run by a person and by .ci/run: `bash deploy/test.sh [pytest arguments]` runs the default tests.
# From any directory; paths in the arguments are relative to the repository. Without arguments three
# processes share the tests (tests/conftest.py says which stay together, and which are first): two
# processors have enough to do, since those that start services mostly wait for them. Their JVMs do
# with the first compiler: they live too short for what the second costs (a fifth of their time).
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
cbp_prepare
cd -- "$CBP_REPO"
if [ $# = 0 ]; then
    set -- -n 3 --dist loadgroup --no-loadscope-reorder
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
fi
exec "$CBP_VENV_PYTHON" -m pytest "$@"
