#!/usr/bin/env bash
# Run by docker-compose.yml in every container (deploy/Dockerfile), and by a person without containers:
#
#     bash deploy/entrypoint.sh prepare   makes the environment and fetches the Delta jars, then ends
#     bash deploy/entrypoint.sh service   the CBP service, in the foreground
#     bash deploy/entrypoint.sh master    a Spark standalone master, from the pip package
#     bash deploy/entrypoint.sh worker    a Spark standalone worker of $SPARK_MASTER_URL
#     bash deploy/entrypoint.sh secrets   creates those secret files of docker-compose.yml that are missing
#     bash deploy/entrypoint.sh images    pins those base images in .env, by digest, that are not pinned yet
#
# Settings come from the environment. The service reads its own (CBP_ROOT, CBP_DATABASE_URL,
# CBP_SPARK_MASTER, CBP_HOST, CBP_PORT, ...: controller/settings.py). Read here:
#     POSTGRES_PASSWORD_FILE   file with the database password, if CBP_DATABASE_URL has none
#     SPARK_SECRET_FILE        file with the secret that master, workers and service share; by default
#                              deploy/secrets/spark_secret, which the master creates
#     CBP_CACHE                service of a cluster, and worker: a folder on a local disk, with the same path
#                              on each machine; by default /var/tmp/cbp-cache-UID
#     SPARK_MASTER_HOST, SPARK_MASTER_PORT, SPARK_MASTER_WEBUI_PORT     master: 127.0.0.1, 7077, 8080
#     SPARK_MASTER_URL         worker: spark://127.0.0.1:7077
#     SPARK_WORKER_HOST, SPARK_WORKER_CORES, SPARK_WORKER_MEMORY, SPARK_WORKER_DIR,
#     SPARK_WORKER_WEBUI_PORT  worker: 127.0.0.1, all cores, 1g, a temporary folder, 8081
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

usage() {
    sed -n '2,/^source/{/^#/s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# A folder that only this user may enter, for files made from secrets and for a worker's files.
private_folder() { mktemp -d "${TMPDIR:-/tmp}/cbp-$1.XXXXXX"; }

require_file() { # NAME PATH
    [ -r "$2" ] && [ -s "$2" ] && return 0
    cbp_say "$1 names $2, which is missing, empty or not readable by $(id -un 2>/dev/null || id -u)."
    exit 2
}

# Every Spark process reads its secret from spark-defaults.conf: not from its command line, which `ps`
# shows. Without a secret anyone who reaches the ports may run code (CVE-2020-9480).
use_spark_secret() {
    local folder
    if [ -z "${SPARK_SECRET_FILE:-}" ]; then
        # Spark's own folder of settings may hold a secret; the service refuses a cluster without one.
        [ -z "${SPARK_CONF_DIR:-}" ] || return 0
        [ "$role" != master ] || make_secret spark_secret
        [ "$role" != service ] || [ -e "$CBP_REPO/deploy/secrets/spark_secret" ] || return 0
        SPARK_SECRET_FILE="$CBP_REPO/deploy/secrets/spark_secret"
    fi
    require_file SPARK_SECRET_FILE "$SPARK_SECRET_FILE"
    folder="$(private_folder spark-conf)"
    if [ -n "${SPARK_CONF_DIR:-}" ]; then
        cp -R -- "$SPARK_CONF_DIR/." "$folder/"
    fi
    {
        printf '\nspark.authenticate true\n'
        printf 'spark.authenticate.secret %s\n' "$(tr -d '\r\n' <"$SPARK_SECRET_FILE")"
        printf 'spark.network.crypto.enabled true\n'
    } >>"$folder/spark-defaults.conf"
    chmod 600 -- "$folder/spark-defaults.conf"
    export SPARK_CONF_DIR="$folder"
}

# libpq takes the password from a file of its own format that only its owner may read.
use_database_password() {
    local folder password
    [ -n "${POSTGRES_PASSWORD_FILE:-}" ] || return 0
    require_file POSTGRES_PASSWORD_FILE "$POSTGRES_PASSWORD_FILE"
    folder="$(private_folder pgpass)"
    password="$(tr -d '\r\n' <"$POSTGRES_PASSWORD_FILE" | sed 's/[\\:]/\\&/g')"
    printf '*:*:*:*:%s\n' "$password" >"$folder/pgpass"
    chmod 600 -- "$folder/pgpass"
    export PGPASSFILE="$folder/pgpass"
}

# Copies of indexes are mapped by every machine of a cluster: on a shared CBP_ROOT they would all go over
# the network. Not below /tmp, which often is memory. Of this user alone: who may write there may change
# what a look-up finds.
use_local_cache() {
    local folder
    [ -z "${CBP_CACHE:-}" ] || return 0
    folder="/var/tmp/cbp-cache-$(id -u)"
    mkdir -m 700 -- "$folder" 2>/dev/null || : # it may be there; that is looked at next
    if [ ! -d "$folder" ] || [ -L "$folder" ] || [ ! -O "$folder" ]; then
        cbp_say "The folder $folder cannot be created, or does not belong to $(id -un 2>/dev/null || id -u)."
        cbp_say "Set CBP_CACHE to a folder that this user can write, on a local disk of each machine."
        exit 2
    fi
    export CBP_CACHE="$folder"
}

use_spark_home() {
    SPARK_HOME="$("$CBP_VENV_PYTHON" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
    export SPARK_HOME PYSPARK_PYTHON="$CBP_VENV_PYTHON"
}

start_service() {
    cbp_prepare port
    use_database_password
    case "${CBP_SPARK_MASTER:-}" in
        spark://*)
            use_spark_secret
            use_local_cache
            # The executors connect back to the driver: by this machine's address, unless a setting names another.
            export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-$(own_address)}"
            ;;
    esac
    exec "$CBP_VENV_PYTHON" -m controller.cli serve "$@"
}

# The address by which this machine reaches the master: the loopback one for a master on it.
own_address() {
    "$CBP_VENV_PYTHON" - "${CBP_SPARK_MASTER:-}" <<'PYTHON'
import socket, sys
host, _, port = sys.argv[1].removeprefix("spark://").split(",")[0].rpartition(":")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((host, int(port)))  # a datagram socket sends nothing on connect
    print(probe.getsockname()[0])
PYTHON
}

start_master() {
    local host="${SPARK_MASTER_HOST:-127.0.0.1}"
    cbp_prepare
    use_spark_home
    use_spark_secret
    export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-$host}"
    # Spark 4 opens a port for submissions over HTTP, which the secret does not guard; nobody needs it.
    export SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false ${SPARK_MASTER_OPTS:-}"
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
        --host "$host" --port "${SPARK_MASTER_PORT:-7077}" \
        --webui-port "${SPARK_MASTER_WEBUI_PORT:-8080}" "$@"
}

start_worker() {
    local host="${SPARK_WORKER_HOST:-127.0.0.1}"
    cbp_prepare
    use_spark_home
    use_spark_secret
    use_local_cache
    export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-$host}"
    # The defaults are Spark's own, but for the folder: it would lie inside the Python package.
    export SPARK_WORKER_DIR="${SPARK_WORKER_DIR:-$(private_folder spark-worker)}"
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
        --host "$host" --webui-port "${SPARK_WORKER_WEBUI_PORT:-8081}" \
        --memory "${SPARK_WORKER_MEMORY:-1g}" \
        ${SPARK_WORKER_CORES:+--cores "$SPARK_WORKER_CORES"} \
        "${SPARK_MASTER_URL:-spark://127.0.0.1:7077}" "$@"
}

# Random, made once, in a folder that only their owner may enter; the files themselves are readable,
# because the users inside the containers have other numbers.
make_secret() { # NAME
    local folder="$CBP_REPO/deploy/secrets" name="$1"
    mkdir -p -- "$folder"
    chmod 700 -- "$folder"
    [ ! -s "$folder/$name" ] || return 0
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$name.new"
    chmod 644 -- "$folder/$name.new"
    mv -f -- "$folder/$name.new" "$folder/$name"
    cbp_say "created deploy/secrets/$name"
}

make_secrets() {
    make_secret database_password
    make_secret spark_secret
}

# A tag moves, a digest does not. The lines are those that docker compose reads; the tags are named here only.
# A pin that is there is kept: to renew one, remove its line.
pin_image() { # VARIABLE NAME:TAG
    local digest pins="$CBP_REPO/.env" pinned=""
    [ ! -e "$pins" ] || pinned="$(sed -n "s/^$1=//p" "$pins" | tail -n 1)"
    case "$pinned" in
        *@sha256:*)
            cbp_say "kept $1=$pinned"
            return 0
            ;;
        ?*)
            cbp_say "$1 in .env is $pinned, which has no digest. Remove the line, or change it to $1=NAME@sha256:..."
            exit 2
            ;;
    esac
    digest="$(docker buildx imagetools inspect "$2" --format '{{.Manifest.Digest}}')" || digest=""
    case "$digest" in
        sha256:*) ;;
        *)
            cbp_say "The digest of $2 was not found. Look it up in your registry, and add this line to .env:"
            cbp_say "$1=$2@sha256:..."
            exit 2
            ;;
    esac
    printf '%s=%s@%s\n' "$1" "$2" "$digest" >>"$pins"
    cbp_say "pinned $1=$2@$digest"
}

pin_images() {
    pin_image CBP_PYTHON_IMAGE python:3.11-slim-bookworm
    pin_image CBP_POSTGRES_IMAGE postgres:16
}

role="${1:-}"
[ $# -gt 0 ] && shift
case "$role" in
    prepare) cbp_prepare ;;
    service) start_service "$@" ;;
    master) start_master "$@" ;;
    worker) start_worker "$@" ;;
    secrets) make_secrets ;;
    images) pin_images ;;
    *) usage ;;
esac
