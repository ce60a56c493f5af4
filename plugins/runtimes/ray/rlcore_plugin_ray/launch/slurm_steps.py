"""The steps of an sbatch file: bash code that reads the variables above it, and contains no value of any run or machine."""

from __future__ import annotations

__all__ = ["STEPS"]

STEPS = r"""
set -eo pipefail

fail() {
  echo "error: $*" >&2
  exit 1
}

[ -n "$SLURM_JOB_ID" ] || fail "this file is for Slurm; type sbatch and its name"
cd -- "$folder" || fail "node $(hostname) does not see $folder; it must be on a file system that every node sees"
scratch=$(mktemp -d "/tmp/rlcore-$SLURM_JOB_ID-XXXXXX") # not in $TMPDIR: Ray's sockets need a short path
ray_dir=${ray_dir:-$scratch}                            # not Ray's /tmp/ray, which belongs to its first user on this node
steps=()                                                # the Ray nodes, as background srun commands, one for each host
others=() starts=() driver='' heard=''

# --- the end of the job --------------------------------------------------------------------------------------
# Slurm sends SIGTERM only to this script before the time limit, and before it preempts the job if its administrator has set
# preempt_send_user_signal. Without that setting the Ray nodes get the signal, some time before a preempted job is killed, and the first
# of them sends it to this script. This script sends it to the driver, which saves and exits with 130. Then, or if a node was lost, the
# job is queued again and resumes: --resume auto finds the newest run of the same settings in run_dir, written by any node, and starts a
# run if there is none. If a finished job is submitted again, it says so and ends with 0.

clean_up() {
  trap '' TERM
  if [ "${#steps[@]}" -gt 0 ]; then
    kill "${steps[@]}" 2>/dev/null || true # srun then kills the whole step with SIGKILL
    wait "${steps[@]}" 2>/dev/null || true
    steps=()
    if [ "${#others[@]}" -gt 0 ]; then
      on "${#others[@]}" "$(commas "${others[@]}")"
      timeout 30 "${step[@]}" rm -rf -- "$scratch" 2>/dev/null || true # Slurm starts no step in a job that it ends
    fi
  fi
  rm -rf -- "$scratch"
}

# shellcheck disable=SC2329 # called by the trap below
stop() {
  heard+=x
  [ "$heard" = x ] || return 0 # a second signal would end the driver at once
  if [ -z "$driver" ]; then    # nothing is trained yet
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
    echo "Slurm itself ends this job or queues it again (scancel, scontrol requeue), so this file does not queue it"
  elif [[ $now != *PreemptTime=[0-9]* && ${SLURM_RESTART_COUNT:-0} -ge $most_requeues ]]; then
    echo "the job was queued again $most_requeues times, the limit of most_requeues in this file; it ends here"
  else
    scontrol requeue "$SLURM_JOB_ID" # Slurm does not requeue a preempted job that ends by itself
  fi
}

trap clean_up EXIT
trap stop TERM

# --- the environment of every node -----------------------------------------------------------------------------

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts[0]}
others=("${hosts[@]:1}")
[ -n "$head" ] || fail "scontrol shows no node for $SLURM_JOB_NODELIST"

[ -z "$venv" ] || export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
export PYTHONUNBUFFERED=1
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # on SIGTERM Ray waits half a minute for users of a node, which have ended here
# A token for this job: it keeps others out. Without it the head would require the token of the home folder, which no client sends.
if [ -z "$RAY_AUTH_MODE" ]; then
  RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
fi
python=${venv:+$venv/bin/python}
python=${python:-python3}
devices=()
[ "$gpus" -eq 0 ] || devices=(--gpus-per-node="$gpus")
inside=() # the prefix of each command
if [ -n "$container" ]; then
  inside=(apptainer exec --bind "$folder" --bind "$scratch" --pwd "$folder")
  [ "$ray_dir" = "$scratch" ] || inside+=(--bind "$ray_dir")
  [ "$gpus" -eq 0 ] || inside+=(--nv)
  inside+=("$container")
fi

# on COUNT HOST,HOST...: sets ${step[@]} to srun with one task on each node, which has all cores and devices. No function runs srun:
# $! would then be a shell in between, which would receive the signal for srun.
on() {
  step=(srun --overlap --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --nodelist="$2" --cpus-per-task="$cpus" "${devices[@]}")
}

commas() { (IFS=, && echo "$*"); }

# everywhere ERROR COMMAND...: runs the command on this node first, then once on each other node. If all share one environment, the
# others find the work done and only read. ERROR is the message if the command fails.
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

# The interpreter's own pip, because the first pip on PATH may install elsewhere.
pip=("$python" -m pip)
if [ -n "$wheels" ] || [ "${#packages[@]}" -gt 0 ]; then
  "${pip[@]}" --version >/dev/null 2>&1 || fail "there is no pip in ${venv:-the environment}; install there the" \
    "packages of versions= and packages= above, and write wheels='' and packages=()"
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
lacking="${venv:-the environment} lacks packages with which this run was checked (install them, or write this file with --wheels FOLDER)"
if [ "${#packages[@]}" -gt 0 ]; then
  # If rlcore is installed and named next to them, pip installs no other rlcore as their dependency.
  everywhere "$lacking" "$python" -c "$look" "${versions[0]}"
  everywhere "${packages[*]} could not be installed" "${pip[@]}" install "${versions[0]}" "${packages[@]}"
fi
[ "${#versions[@]}" -eq 0 ] || everywhere "$lacking" "$python" -c "$look" "${versions[@]}"

# --- Ray: the head first, then the other nodes -------------------------------------------------------------------

# Jobs that share a node use different ports: two are derived from this job's id, the others are any free ones (0). The second is that
# of the Ray client server, which this job does not use. It starts if grpc is installed; if not, Ray refuses the option.
port=$((20000 + SLURM_JOB_ID % 5000 * 2))
# The network may not know Slurm's name of a node. Then use Slurm's address of the node.
place=$head
getent hosts "$head" >/dev/null || place=$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
[ -n "$place" ] || fail "the network does not know the name $head, and Slurm has no address for it"
address="$place:$port"
common=(--num-cpus="$cpus" --num-gpus="$gpus" --dashboard-agent-listen-port=0 --min-worker-port=0 --max-worker-port=0 --disable-usage-stats)
start_head=(ray start --head --block --port="$port" --dashboard-port=0 --temp-dir="$ray_dir")
mkdir -p -- "$ray_dir" || fail "$head cannot make $ray_dir, the folder for Ray's files; type another --ray_dir"
if "${inside[@]}" "$python" -c 'import grpc' 2>/dev/null; then
  start_head+=(--ray-client-server-port="$((port + 1))")
fi

# The command that runs Ray on a node. It makes the node's folders, which an image must see, and removes those of earlier starts of this
# job. Ray does not receive SIGTERM: some time before Slurm kills a preempted job, it sends SIGCONT and SIGTERM to every process of the
# step. The run needs that time, and Ray, to save. On the first node the command sends SIGTERM to this script instead.
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

# Tests whether all nodes are still in the cluster. Slurm may take minutes to notice that one is gone.
whole() {
  local pid found
  for pid in "${steps[@]}"; do kill -0 "$pid" 2>/dev/null || return; done
  found=$(joined) && [ "${found:-0}" -ge "${#hosts[@]}" ]
}

# start_ray PLACE: starts Ray on the host with this index
start_ray() {
  on 1 "${hosts[$1]}"
  if [ "$1" -eq 0 ]; then
    "${step[@]}" "${node[@]}" "$$" "${run_ray[@]}" "${start_head[@]}" "${common[@]}" &
  else
    "${step[@]}" "${node[@]}" '' "${run_ray[@]}" ray start --address="$address" --block "${common[@]}" &
  fi
  steps[$1]=$!
}

# start_again PLACE: Ray gives a node 30 s to join, which may be too short on a busy machine or a slow file system
start_again() {
  starts[$1]=$((${starts[$1]:-1} + 1))
  [ "${starts[$1]}" -le "$most_starts" ] || fail "Ray on ${hosts[$1]} ended before the cluster was complete; its last output is above"
  echo "Ray on ${hosts[$1]} ended before the cluster was complete, and is started again"
  start_ray "$1"
}

# wait_for COUNT: waits until this many nodes are in the cluster
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
for place in "${!others[@]}"; do start_ray "$((place + 1))"; done # one step for each: a step for all would end with the last
wait_for "${#hosts[@]}"

# --- the run -------------------------------------------------------------------------------------------------------
# The driver records its process id for SIGTERM: in a container it differs from the one that bash knows.

# shellcheck disable=SC2016
"${inside[@]}" bash -c 'echo "$$" >"$0" && exec "$@"' "$scratch/driver" \
  rlcore train "${train[@]}" --resume auto --runtime ray --master_address "$address" &
driver=$!
while :; do
  before=$heard
  wait "$driver" && status=0 || status=$?
  [ "$before" != "$heard" ] || break # else a signal ended the wait and not the driver
done
if [ -n "$heard" ] && { [ "$status" -eq 130 ] || [ "$status" -eq 143 ]; }; then # 143: the driver had just started
  clean_up
  requeue
elif [ "$status" -eq 137 ]; then
  echo "the run was killed; the system does that if memory runs out"
  clean_up
  requeue
elif [ "$status" -ne 0 ] && [ "$status" -ne 2 ] && ! whole; then
  echo "the run ended because a node, or Ray on it, was lost"
  clean_up
  requeue
fi
exit "$status"
"""
