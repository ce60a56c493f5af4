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
scratch=$(mktemp -d)
steps=() # the Ray nodes, as background srun commands
driver='' asked=''

# --- how it ends ---------------------------------------------------------------------------------------------
# Before the time limit Slurm sends SIGTERM to this script alone. It goes on to the driver, which saves and exits with 130;
# then the job is queued again. TODAY THE REQUEUED JOB STARTS ANEW, in a run folder of its own: rlcore cannot resume yet. What
# was saved stays in the folder of the run that ended; the weights in its checkpoint can be trained on from (rlcore train -m).

clean_up() {
  trap '' TERM
  if [ "${#steps[@]}" -gt 0 ]; then
    kill "${steps[@]}" 2>/dev/null || true
    wait "${steps[@]}" 2>/dev/null || true
  fi
  rm -rf -- "$scratch"
}

# shellcheck disable=SC2329 # called by the trap below
stop() {
  asked=yes
  [ -n "$driver" ] || exit 143 # nothing has been trained
  while [ ! -s "$scratch/driver" ] && kill -0 "$driver" 2>/dev/null; do sleep 0.1; done
  kill -TERM "$(cat "$scratch/driver")" 2>/dev/null || true
}

requeue() {
  case "$(scontrol show job "$SLURM_JOB_ID")" in
    *JobState=CANCELLED* | *JobState=COMPLETING*) echo "the job was cancelled, so it is not queued again" ;;
    *)
      if [ "${SLURM_RESTART_COUNT:-0}" -ge "$most_requeues" ]; then
        echo "the job was queued again $most_requeues times, which is the most (most_requeues in this file); it ends here"
      else
        scontrol requeue "$SLURM_JOB_ID"
      fi
      ;;
  esac
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
devices=()
[ "$gpus" -eq 0 ] || devices=(--gpus-per-node="$gpus")
inside=() # what stands before each command
if [ -n "$container" ]; then
  inside=(apptainer exec --bind "$folder" --pwd "$folder")
  [ "$gpus" -eq 0 ] || inside+=(--nv)
  inside+=("$container")
fi

# on COUNT HOST,HOST...: srun in ${step[@]}, one task a node with all of its cores and devices. No function runs it: $! of a
# function is a shell in between, which would take the signal that srun is to get.
on() {
  step=(srun --overlap --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --nodelist="$2" --cpus-per-task="$cpus" "${devices[@]}")
}

others_list=$(IFS=, && echo "${others[*]}")
if [ "${#packages[@]}" -gt 0 ]; then
  command -v pip >/dev/null || fail "there is no pip in ${venv:-the environment}; install ${packages[*]} there and write packages=() above"
  # Here first: where all nodes share one environment, the others find it done and only read.
  pip install "${packages[@]}" || fail "the plugins could not be installed on $head; see pip above"
  if [ "${#others[@]}" -gt 0 ]; then
    on "${#others[@]}" "$others_list"
    "${step[@]}" pip install "${packages[@]}" || fail "the plugins could not be installed on $others_list; see pip above"
  fi
fi

# --- Ray: the head here, then the other nodes --------------------------------------------------------------------

address="$head:$((20000 + SLURM_JOB_ID % 10000))" # jobs that share a node have ports of their own

joined() {
  "${inside[@]}" ray status --address="$address" 2>/dev/null | grep -Ec '^ *[0-9]+ node_' || true
}

# wait_for COUNT: until so many nodes are in the cluster
wait_for() {
  local end=$((SECONDS + join_seconds)) found
  while found=$(joined) && [ "${found:-0}" -lt "$1" ]; do
    kill -0 "${steps[0]}" 2>/dev/null || fail "the Ray head on $head ended before the cluster was whole; its last words are above"
    kill -0 "${steps[-1]}" 2>/dev/null || fail "a Ray node of $others_list ended before the cluster was whole; its last words are above"
    [ "$SECONDS" -lt "$end" ] || fail "${found:-0} of $1 nodes joined Ray at $address within $join_seconds s; is its port open?"
    sleep 0.5
  done
}

start_head=(ray start --head --block --port="${address##*:}" --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats)
[ -z "$ray_dir" ] || start_head+=(--temp-dir="$ray_dir")
on 1 "$head"
"${step[@]}" "${inside[@]}" "${start_head[@]}" &
steps+=("$!")
wait_for 1
if [ "${#others[@]}" -gt 0 ]; then
  on "${#others[@]}" "$others_list"
  "${step[@]}" "${inside[@]}" ray start --address="$address" --block --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats &
  steps+=("$!")
  wait_for "${#hosts[@]}"
fi

# --- the run -------------------------------------------------------------------------------------------------------
# The driver notes its process, for SIGTERM: in a container it is not the one that bash knows.

# shellcheck disable=SC2016
"${inside[@]}" bash -c 'echo "$$" >"$0" && exec "$@"' "$scratch/driver" \
  rlcore train "${train[@]}" --runtime ray --master_address "$address" &
driver=$!
status=0
while :; do
  before=$asked
  wait "$driver" && status=0 || status=$?
  [ "$before" != "$asked" ] || break # else a signal ended the wait, not the driver
done
if [ -n "$asked" ] && [ "$status" -eq 130 ]; then
  clean_up
  requeue
fi
exit "$status"
"""
