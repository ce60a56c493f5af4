"""The steps of an sbatch file: bash that reads the variables written above it, and names nothing of any run or machine."""

from __future__ import annotations

__all__ = ["STEPS"]

STEPS = r"""
set -eo pipefail

fail() {
  echo "error: $*" >&2
  exit 1
}

[ -n "$SLURM_JOB_ID" ] || fail "this file is for Slurm; type sbatch and its name"
cd -- "$folder" || fail "node $(hostname) does not see $folder; it must lie on a file system that every node sees"
scratch=$(mktemp -d "/tmp/rlcore-$SLURM_JOB_ID-XXXXXX") # not in $TMPDIR: Ray's sockets need a short path
ray_dir=${ray_dir:-$scratch}                            # not Ray's /tmp/ray, which belongs to whoever ran Ray here first
steps=()                                                # the Ray nodes, as background srun commands, one a host
others=() starts=() driver='' heard=''

# --- how it ends ---------------------------------------------------------------------------------------------
# Slurm sends SIGTERM to this script alone before the time limit, and before it preempts the job if its administrator has set
# preempt_send_user_signal. Without that, the Ray nodes get it, some time before a preempted job is killed; the first of them passes it on
# to this script. This script passes it on to the driver, which saves and exits with 130. Then, and if a node was lost, the job is queued
# again, and goes on: --resume auto finds the newest run of the same settings in run_dir, whatever node wrote it, and begins one if there
# is none. A job that is submitted again after it was finished says so, and ends with 0.

clean_up() {
  trap '' TERM
  if [ "${#steps[@]}" -gt 0 ]; then
    kill "${steps[@]}" 2>/dev/null || true # srun then kills the whole step by SIGKILL
    wait "${steps[@]}" 2>/dev/null || true
    steps=()
    if [ "${#others[@]}" -gt 0 ]; then
      on "${#others[@]}" "$(commas "${others[@]}")"
      timeout 30 "${step[@]}" rm -rf -- "$scratch" 2>/dev/null || true # no step starts in a job that Slurm ends
    fi
  fi
  rm -rf -- "$scratch"
}

# shellcheck disable=SC2329 # called by the trap below
stop() {
  heard+=x
  [ "$heard" = x ] || return 0 # told twice: the driver would end at once
  if [ -z "$driver" ]; then    # nothing has been trained
    clean_up
    requeue
    exit 143
  fi
  while [ ! -s "$scratch/driver" ] && kill -0 "$driver" 2>/dev/null; do sleep 0.1; done
  kill -TERM "$(cat "$scratch/driver")" 2>/dev/null || true
}

requeue() {
  local now
  now=$(scontrol show job "$SLURM_JOB_ID")
  if [[ $now == *JobState=CANCELLED* || $now == *JobState=COMPLETING* ]]; then
    echo "Slurm itself ends this job or queues it again (scancel, scontrol requeue), so this file does not"
  elif [[ $now != *PreemptTime=[0-9]* && ${SLURM_RESTART_COUNT:-0} -ge $most_requeues ]]; then
    echo "the job was queued again $most_requeues times, which is the most (most_requeues in this file); it ends here"
  else
    scontrol requeue "$SLURM_JOB_ID" # a preempted job that ends by itself is not queued again by Slurm
  fi
}

trap clean_up EXIT
trap stop TERM

# --- the environment, on every node ----------------------------------------------------------------------------

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts[0]}
others=("${hosts[@]:1}")
[ -n "$head" ] || fail "scontrol names no node for $SLURM_JOB_NODELIST"

[ -z "$venv" ] || export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
export PYTHONUNBUFFERED=1
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # on SIGTERM Ray waits half a minute for users of a node; here those have ended
# A token of the job's own: nobody else gets in, and a token at home would otherwise be asked for by the head and sent by nobody.
if [ -z "$RAY_AUTH_MODE" ]; then
  RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
fi
python=${venv:+$venv/bin/python}
python=${python:-python3}
devices=()
[ "$gpus" -eq 0 ] || devices=(--gpus-per-node="$gpus")
inside=() # what stands before each command
if [ -n "$container" ]; then
  inside=(apptainer exec --bind "$folder" --bind "$scratch" --pwd "$folder")
  [ "$ray_dir" = "$scratch" ] || inside+=(--bind "$ray_dir")
  [ "$gpus" -eq 0 ] || inside+=(--nv)
  inside+=("$container")
fi

# on COUNT HOST,HOST...: srun in ${step[@]}, one task a node with all of its cores and devices. No function runs it: $! of a
# function is a shell in between, which would take the signal that srun is to get.
on() {
  step=(srun --overlap --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --nodelist="$2" --cpus-per-task="$cpus" "${devices[@]}")
}

commas() { (IFS=, && echo "$*"); }

# everywhere WHAT COMMAND...: on this node first, then once on each other. If all share one environment, the others find it done and
# only read. WHAT says what did not happen.
everywhere() {
  local what=$1 others_list
  shift
  "$@" || fail "$what on $head; see above"
  if [ "${#others[@]}" -gt 0 ]; then
    others_list=$(commas "${others[@]}")
    on "${#others[@]}" "$others_list"
    "${step[@]}" "$@" || fail "$what on $others_list; see above"
  fi
}

# The interpreter's own pip: the first one on PATH may install elsewhere.
pip=("$python" -m pip)
if [ -n "$wheels" ] || [ "${#packages[@]}" -gt 0 ]; then
  "${pip[@]}" --version >/dev/null 2>&1 || fail "there is no pip in ${venv:-the environment}; install there what" \
    "versions= and packages= above name, and write wheels='' and packages=()"
fi
[ -z "$wheels" ] ||
  everywhere "rlcore and its plugins could not be installed from $wheels" \
    "${pip[@]}" install --no-index --find-links "$wheels" "${versions[@]}"

look='
import socket, sys
from importlib.metadata import PackageNotFoundError, version

def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

wanted = [word.split("==") for word in sys.argv[1:]]
wrong = [f"{name} is {found(name)}, not {needed}" for name, needed in wanted if found(name) != needed]
sys.exit(f"node {socket.gethostname()}: " + "; ".join(wrong) if wrong else 0)
'
lacking="${venv:-the environment} lacks what this run was checked with (install it, or write this file with --wheels FOLDER)"
if [ "${#packages[@]}" -gt 0 ]; then
  # With rlcore there, and named beside them, pip takes no other rlcore for what they depend on.
  everywhere "$lacking" "$python" -c "$look" "${versions[0]}"
  everywhere "${packages[*]} could not be installed" "${pip[@]}" install "${versions[0]}" "${packages[@]}"
fi
[ "${#versions[@]}" -eq 0 ] || everywhere "$lacking" "$python" -c "$look" "${versions[@]}"

# --- Ray: the head here, then the other nodes --------------------------------------------------------------------

# Jobs that share a node meet on no port: two are of this job's own, the others any that are free (0). The second is that of the Ray
# client server, which nobody uses here: it starts where grpc is installed, and where it is not Ray refuses the option.
port=$((20000 + SLURM_JOB_ID % 5000 * 2))
# Slurm's name of a node need not be a name that the network knows; then Slurm's address of it is taken.
place=$head
getent hosts "$head" >/dev/null || place=$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
[ -n "$place" ] || fail "$head is no name that the network knows, and Slurm has no address for it"
address="$place:$port"
common=(--num-cpus="$cpus" --num-gpus="$gpus" --dashboard-agent-listen-port=0 --min-worker-port=0 --max-worker-port=0 --disable-usage-stats)
start_head=(ray start --head --block --port="$port" --dashboard-port=0 --temp-dir="$ray_dir")
mkdir -p -- "$ray_dir" || fail "$head cannot make $ray_dir, the folder for Ray's files; type another --ray_dir"
if "${inside[@]}" "$python" -c 'import grpc' 2>/dev/null; then
  start_head+=(--ray-client-server-port="$((port + 1))")
fi

# What runs Ray on a node: makes its folders, which an image is to see, and removes what an earlier life of this job left there. Ray does
# not hear SIGTERM: to a preempted job Slurm sends SIGCONT and SIGTERM, to every process of the step, some time before it kills them,
# and the run needs that time, and Ray, to save. On the first node this script is told instead.
deaf='import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); os.execvp(sys.argv[1], sys.argv[1:])'
# shellcheck disable=SC2016
node=(bash -c '
trap "heard+=x; [ -z \"\$tell\" ] || kill -TERM \"\$tell\"" TERM
tell=$1
for old in "${0%-*}"-*; do [ "$old" = "$0" ] || rm -rf -- "$old"; done
mkdir -p -- "$0" "$2" || exit
"${@:3}" &
until before=$heard; wait "$!" && status=0 || status=$?; [ "$before" = "$heard" ]; do :; done
exit "$status"' "$scratch")
run_ray=("$ray_dir" "${inside[@]}" "$python" -c "$deaf")

joined() {
  timeout 30 "${inside[@]}" ray status --address="$address" 2>/dev/null | grep -Ec '^ *[0-9]+ node_' || true
}

# Whether all nodes are in the cluster still. Slurm may take minutes to notice that one is gone.
whole() {
  local pid found
  for pid in "${steps[@]}"; do kill -0 "$pid" 2>/dev/null || return; done
  found=$(joined) && [ "${found:-0}" -ge "${#hosts[@]}" ]
}

# start_ray PLACE: on the node with this place among the hosts
start_ray() {
  on 1 "${hosts[$1]}"
  if [ "$1" -eq 0 ]; then
    "${step[@]}" "${node[@]}" "$$" "${run_ray[@]}" "${start_head[@]}" "${common[@]}" &
  else
    "${step[@]}" "${node[@]}" '' "${run_ray[@]}" ray start --address="$address" --block "${common[@]}" &
  fi
  steps[$1]=$!
}

# start_again PLACE: Ray gives a node 30 s to join, which a busy machine or a slow file system may not keep
start_again() {
  starts[$1]=$((${starts[$1]:-1} + 1))
  [ "${starts[$1]}" -le "$most_starts" ] || fail "Ray on ${hosts[$1]} ended before the cluster was whole; its last words are above"
  echo "Ray on ${hosts[$1]} ended before the cluster was whole, and is started again"
  start_ray "$1"
}

# wait_for COUNT: until so many nodes are in the cluster
wait_for() {
  local end=$((SECONDS + join_seconds)) found place
  while found=$(joined) && [ "${found:-0}" -lt "$1" ]; do
    for place in "${!steps[@]}"; do
      kill -0 "${steps[place]}" 2>/dev/null || start_again "$place"
    done
    [ "$SECONDS" -lt "$end" ] || fail "${found:-0} of $1 nodes joined Ray at $address within $join_seconds s; is its port open?"
    sleep 0.5
  done
}

start_ray 0
wait_for 1
for place in "${!others[@]}"; do start_ray "$((place + 1))"; done # a step each: one for all of them would end with the last
wait_for "${#hosts[@]}"

# --- the run -------------------------------------------------------------------------------------------------------
# The driver notes its process, for SIGTERM: in a container it is not the one that bash knows.

# shellcheck disable=SC2016
"${inside[@]}" bash -c 'echo "$$" >"$0" && exec "$@"' "$scratch/driver" \
  rlcore train "${train[@]}" --resume auto --runtime ray --master_address "$address" &
driver=$!
while :; do
  before=$heard
  wait "$driver" && status=0 || status=$?
  [ "$before" != "$heard" ] || break # else a signal ended the wait, not the driver
done
if [ -n "$heard" ] && { [ "$status" -eq 130 ] || [ "$status" -eq 143 ]; }; then # 143: it had just begun
  clean_up
  requeue
elif [ "$status" -eq 137 ]; then
  echo "the run was killed, as the system does if memory runs out"
  clean_up
  requeue
elif [ "$status" -ne 0 ] && [ "$status" -ne 2 ] && ! whole; then
  echo "the run ended because a node, or Ray on it, was lost"
  clean_up
  requeue
fi
exit "$status"
"""
