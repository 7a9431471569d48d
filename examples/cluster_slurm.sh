#!/bin/bash
# The study grid on a SLURM site: one Dask worker per task, the scheduler and the notebooks on the first node.
#
#   make setup                                   # once, on a login node: .venv with the pins, Dask among them
#   make data                                    # where compute nodes have no network
#   sbatch examples/cluster_slurm.sh             # from the repository's root; ONLY=01 PROFILE=smoke may follow
#
# The repository, its .venv and data/ lie on a file system that all nodes share. A job that is cut off by its time
# limit loses the runs under way alone: submit the same line again. On another batch system the #SBATCH lines and
# srun differ, nothing else. Dask trusts whoever reaches its port: on a network you share with strangers give the
# scheduler and the workers certificates (--tls-ca-file, --tls-cert, --tls-key; Dask's configuration for the client).
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
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -f "$file"' EXIT

# Several networks? Add --interface ib0 (or the like) to both.
.venv/bin/dask scheduler --scheduler-file "$file" --port 0 --dashboard-address :0 &

# One thread per worker, because a run has its process to itself. Dask restarts a worker that dies or outgrows its
# memory; should one be lost with its node, the others go on (--kill-on-bad-exit=0 --wait=0).
srun --kill-on-bad-exit=0 --wait=0 .venv/bin/dask worker --scheduler-file "$file" --nthreads 1 --no-dashboard \
    --memory-limit "${SLURM_MEM_PER_CPU:-3000}MB" --local-directory "${TMPDIR:-/tmp}" &

# Ten minutes for the first worker. Notebooks run here, their runs on the workers.
BIF_CLUSTER_WAIT=600 make reproduce CLUSTER="$file" "$@"
