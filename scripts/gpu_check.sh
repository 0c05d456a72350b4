#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the CUDA device on a machine with a GPU; needs no network and no compiler there.
#   scripts/gpu_check.sh --pack FILE.tar [--bin DIR]   here: this script, programs, their libraries
#   gpu_check.sh [--out DIR]                           there, unpacked: runs all of it, under 8 minutes
#   scripts/gpu_check.sh --stand-in [--out DIR]        here, on the stand-in for the driver, small
# Programs: cmake --build --preset release --target gpu_check_programs
# Writes gpu_check.json, summary.txt and the output of each part into DIR (default: gpu_check_out).
# cuBLASLt is not packed: it is the machine's own, or in CUBLAS_LIB, a folder.
# Exit code 0: all passed; 1: something failed; 3: no GPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(link_bench gpu_conformance_test gpt_gpu_ops_test outboard_gpt)
bin= out=gpu_check_out pack= stand_in=

while (($# > 0)); do
  case $1 in
    --pack) pack=${2:?--pack needs a file} && shift ;;
    --bin) bin=${2:?--bin needs a folder} && shift ;;
    --out) out=${2:?--out needs a folder} && shift ;;
    --stand-in) stand_in=yes ;;
    -h | --help) sed -n '3,11s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) echo "unknown argument $1" >&2 && exit 2 ;;
  esac
  shift
done

if [[ -z $bin ]]; then
  bin=$here/../build/release/bin
  [[ ! -d $here/bin ]] || bin=$here/bin
fi
for program in "${programs[@]}"; do
  [[ -x $bin/$program ]] || { echo "no $bin/$program: build the target gpu_check_programs" >&2; exit 2; }
done

# Everything that ldd finds, but what belongs to the system's C library.
libraries_of() {
  local program
  for program in "${programs[@]}"; do ldd "$bin/$program"; done |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libcuda)\.so' || true
}

if [[ -n $pack ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$folder/gpu_check/bin" "$folder/gpu_check/lib"
  cp "${BASH_SOURCE[0]}" "$folder/gpu_check/"
  for program in "${programs[@]}"; do
    cp "$bin/$program" "$folder/gpu_check/bin/"
    strip "$folder/gpu_check/bin/$program"
  done
  libraries_of | xargs -r cp -L -t "$folder/gpu_check/lib"
  tar -cf "$pack" -C "$folder" gpu_check
  echo "$pack: $(($(stat -c %s "$pack") / 1048576)) MiB"
  exit 0
fi

mkdir -p "$out"
libraries=$here/lib
[[ ! -n ${CUBLAS_LIB:-} ]] || libraries+=:$CUBLAS_LIB
link_mib=256 steps=300 model=(--preset demo)
title="GPU check"
if [[ -n $stand_in ]]; then
  libraries=$bin/../tests/fake_cuda/lib:$libraries
  export OUTBOARD_FAKE_CUDA_MEMORY=$((512 << 20))
  link_mib=16 steps=30 model=(--preset tiny --layers 2 --width 32 --heads 2 --context 32 --batch 4)
  title="GPU check ON THE STAND-IN FOR THE DRIVER: no GPU was used, and no time below means anything"
fi
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

rows=() json=() failed=0 began=$SECONDS

# part <name> <most seconds> <command...>: its output goes to a file.
part() {
  local name=$1 limit=$2 start=$SECONDS status=0 verdict=passed
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.txt" 2>&1 || status=$?
  # A suite that skips all of its tests, for want of what it tests, ends well.
  ((status != 0)) || ! grep -qF '[  PASSED  ] 0 tests' "$out/$name.txt" || status=77
  if ((status != 0)); then
    verdict="failed ($status)"
    failed=1
  fi
  rows+=("$(printf '%-22s %-12s %4d s' "$name" "$verdict" $((SECONDS - start)))")
  json+=("\"$name\": {\"passed\": $([[ $verdict == passed ]] && echo true || echo false), \"exit\": $status, \"seconds\": $((SECONDS - start))}")
  return "$status"
}

# Learnable text, the same everywhere.
make_text() {
  awk 'BEGIN {
    srand(1)
    split("the engine,a gradient,the weight,one bucket,the device,a step", who, ",")
    split("waits for,moves,refreshes,carries,follows,updates", does, ",")
    for (i = 0; i < 8000; ++i) {
      printf "%s %s %s%s", who[int(rand() * 6) + 1], does[int(rand() * 6) + 1],
        who[int(rand() * 6) + 1], rand() < 0.25 ? ".\n" : ", "
    }
  }' >"$out/text.txt"
}

digest_of() { sed -n 's/^state digest: //p' "$out/$1.txt"; }
loss_at() { awk -v step="$2" '$1 == step && $2 ~ /^[0-9.]+$/ { print $2; exit }' "$out/$1.txt"; }

status=0
part link 60 "$bin/link_bench" "$link_mib" || status=$?
if ((status == 3)); then
  echo "no GPU: $(cat "$out/link.txt")"
  printf '{"gpu": false, "why": "%s"}\n' "$(tr -d '\n' <"$out/link.txt" | sed 's/[\"\\]/ /g')" \
    >"$out/gpu_check.json"
  exit 3
fi
part device_conformance 100 "$bin/gpu_conformance_test" --gtest_brief=1 || true
part operator_conformance 60 "$bin/gpt_gpu_ops_test" --gtest_brief=1 || true
make_text
arguments=("$out/text.txt" --device cuda "${model[@]}" --steps "$steps" --print-every 50
  --eval-tokens 1024 --sample-tokens 40)
part gpt_offload 80 "$bin/outboard_gpt" "${arguments[@]}" --offload on || true
part gpt_no_offload 80 "$bin/outboard_gpt" "${arguments[@]}" --offload off || true
if command -v compute-sanitizer >/dev/null && [[ -z $stand_in ]]; then
  part compute_sanitizer 80 compute-sanitizer --error-exitcode 9 "$bin/gpt_gpu_ops_test" \
    --gtest_filter='*Loss*:*Attention/*:*LayerNorm*' --gtest_brief=1 || true
fi

same=false
[[ -z $(digest_of gpt_offload) || $(digest_of gpt_offload) != "$(digest_of gpt_no_offload)" ]] || same=true
[[ $same == true ]] || failed=1
first=$(loss_at gpt_offload 1) last=$(loss_at gpt_offload "$steps")
falls=$(awk -v a="${first:-0}" -v b="${last:-1}" 'BEGIN { print (a - b > 0.3) ? "true" : "false" }')
[[ $falls == true ]] || failed=1

{
  echo "$title"
  printf '%s\n' "${rows[@]}"
  echo "link: $(cat "$out/link.txt")"
  echo "loss of $steps steps: ${first:-?} to ${last:-?}, falls: $falls"
  echo "state with offload and without: $(digest_of gpt_offload) and $(digest_of gpt_no_offload), same bits: $same"
  grep -hE '^steps: |^device memory: ' "$out/gpt_offload.txt" || true
  ((failed == 0)) && echo "all passed in $((SECONDS - began)) s" || echo "SOMETHING FAILED: see $out"
} | tee "$out/summary.txt"

link=$(grep '^{' "$out/link.txt" || echo null)
{
  printf '{"gpu": true, "stand_in": %s, "passed": %s, "seconds": %d,\n "link": %s,\n' \
    "$([[ -n $stand_in ]] && echo true || echo false)" \
    "$( ((failed == 0)) && echo true || echo false)" $((SECONDS - began)) "$link"
  printf ' "loss": {"first": %s, "last": %s, "steps": %d}, "same_bits": %s,\n "parts": {' \
    "${first:-null}" "${last:-null}" "$steps" "$same"
  separator=
  for entry in "${json[@]}"; do printf '%s%s' "$separator" "$entry" && separator=', '; done
  printf '}}\n'
} >"$out/gpu_check.json"
exit "$failed"
