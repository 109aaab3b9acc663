#!/bin/sh
# Runs a bandmaster that counts what it does, over scenarios of all schemes, and writes down what runs often. `static.sh` lays
# out released programs by it (profile-guided optimization); their results stay the same.
#
#   packaging/profile.sh          writes target/static/runs-MACHINE.profdata, for static.sh with the same PROFILE
#
# Takes rustup and its component llvm-tools.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh

profile=${PROFILE:-release}
machine=$(uname -m)
host=$(rustc -vV | sed -n 's/^host: //p')
tools=$(rustc --print sysroot)/lib/rustlib/$host/bin
[ -x "$tools/llvm-profdata" ] || rustup component add llvm-tools
mkdir -p "$out"
counts=$(cd "$out" && pwd)/counts
rm -rf "$counts"

# The same target, profile and flags as in static.sh: names of functions depend on them. Not in the folder of other builds.
built=$out/counting
link_static "$machine" "-C profile-generate=$counts"
cargo build --locked --profile "$profile" --package bandmaster --target "$target" --target-dir "$built"
[ "$profile" = dev ] && profile=debug
counting=$built/$target/$profile/bandmaster
# Exit code 1: a claim does not hold, or one trial does not decide it.
for paper in bas er2bc fbqm opentcp qcbf published; do
    "$counting" reproduce "$paper" --quick --no-report --quiet > /dev/null || [ $? = 1 ] || fail "reproduce $paper"
done
for run in cbr bulk "flows-tcp --set run.duration=1s" "incast-fat-tree --set run.duration=2ms --set run.sample=1ms"; do
    # shellcheck disable=SC2086 # A name, then options.
    set -- $run
    file=scenarios/bench/$1.toml
    shift
    "$counting" run "$file" "$@" --trials 1 --no-report --quiet > /dev/null || [ $? = 1 ] || fail "run $file"
done
"$tools/llvm-profdata" merge -o "$out/runs-$machine.profdata" "$counts"
rm -rf "$counts" "$built"
echo "$out/runs-$machine.profdata"
