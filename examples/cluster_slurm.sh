#!/bin/bash
# The study grid on a SLURM site: one Dask worker per task, the scheduler and the notebooks on the first node.
#
#   make setup                                   # once, on a login node: .venv with the pins, Dask among them
#   make data                                    # where compute nodes have no network
#   sbatch examples/cluster_slurm.sh             # from the repository's root; ONLY=01 PROFILE=smoke may follow
#
# The repository, its .venv and data/ lie on a file system that all nodes share. A job that is cut off by its time
# limit loses the runs under way alone: submit the same line again. On another batch system the #SBATCH lines and
# srun differ, nothing else.
#
# Dask does what it is told by whoever reaches its port. Hence the scheduler listens on one address of the first node
# alone, and speaks TLS with a certificate made for this job, whose key only your account can read.
#
#SBATCH --job-name=bifkit
#SBATCH --ntasks=32
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=3G
#SBATCH --time=02:00:00
#SBATCH --output=bifkit-%j.log

set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?submit this script: sbatch examples/cluster_slurm.sh}"
test -x .venv/bin/dask || { echo "There is no .venv with Dask here: make setup first, then submit from the repository's root." >&2; exit 1; }

mkdir -p build
file="$PWD/build/scheduler-$SLURM_JOB_ID.json"  # where the scheduler writes its address
keys=$(mktemp -d "$PWD/build/tls-XXXXXX")  # mktemp: for this account alone
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$file" "$keys"' EXIT

# One certificate, its own authority: who has its key belongs to this job. Dask's configuration hands it to all three.
openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj "/CN=bifkit" -keyout "$keys/key.pem" -out "$keys/cert.pem" 2>/dev/null
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true DASK_DISTRIBUTED__COMM__TLS__CA_FILE="$keys/cert.pem"
for part in SCHEDULER WORKER CLIENT; do
    export DASK_DISTRIBUTED__COMM__TLS__${part}__CERT="$keys/cert.pem" DASK_DISTRIBUTED__COMM__TLS__${part}__KEY="$keys/key.pem"
done

# INTERFACE=ib0 names the network that the nodes share; without it, it is that of the node's own name.
if [ -n "${INTERFACE:-}" ]; then bind=(--interface "$INTERFACE"); else bind=(--host "$(hostname -i | cut -d ' ' -f 1)"); fi
.venv/bin/dask scheduler --scheduler-file "$file" --protocol tls "${bind[@]}" --port 0 --no-dashboard &

# One thread per worker, because a run has its process to itself. Dask restarts a worker that dies or outgrows its
# memory; should one be lost with its node, the others go on (--kill-on-bad-exit=0 --wait=0).
srun --kill-on-bad-exit=0 --wait=0 .venv/bin/dask worker --scheduler-file "$file" --nthreads 1 --no-dashboard \
    ${INTERFACE:+--interface "$INTERFACE"} --memory-limit "${SLURM_MEM_PER_CPU:-3000}MB" --local-directory "${TMPDIR:-/tmp}" &

# Ten minutes for the first worker. Notebooks run here, their runs on the workers.
BIF_CLUSTER_WAIT=600 make reproduce CLUSTER="$file" "$@"
