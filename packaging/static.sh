#!/bin/sh
# Builds bandmaster as one file without a shared library, for a gateway that has no toolchain, and tries what it built.
#
#   packaging/static.sh [x86_64] [aarch64]        both when none is named
#
# Takes rustup; no C compiler: what is linked is Rust and the C library that comes with the target (musl). The programs in
# the kernel are objects of the sources. PROFILE=dev builds faster, and larger. What `profile.sh` has written lays the program
# out, on the machine that it ran on. Files go to target/static/.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh

profile=${PROFILE:-release}
folder=$profile
[ "$profile" = dev ] && folder=debug
mkdir -p "$out"

# Runs the program $1 of machine $2 where there is nothing else; none: this machine cannot run it.
try() {
    runner=
    if [ "$2" != "$(uname -m)" ]; then
        runner=$(command -v "qemu-$2-static" || true)
        if [ -z "$runner" ]; then
            echo "skipped: $1 is not tried: no qemu-$2-static (Debian: qemu-user-static)"
            return 0
        fi
    fi
    root=$(mktemp -d)
    cp "$1" "$root/bandmaster"
    cat > "$root/gateway.toml" <<'FILE'
version = 1
role = "receiver"
interface = "lo"
[peer]
address = "203.0.113.9"
auth = "none"
FILE
    if [ -n "$runner" ]; then
        cp "$runner" "$root/qemu"
        set -- "$1" "$2" /qemu /bandmaster
    else
        set -- "$1" "$2" /bandmaster
    fi
    # A root that has nothing but the program and the file: what it would load is not there.
    if [ "$(id -u)" = 0 ]; then
        said=$(chroot "$root" "${3}" ${4:-} --version) || fail "$1 does not start in an empty root"
        checked=$(chroot "$root" "${3}" ${4:-} gateway check /gateway.toml) || fail "$1 gateway check failed"
        where="in an empty root"
    else
        said=$(${runner:-} "$1" --version) || fail "$1 does not start"
        checked=$(${runner:-} "$1" gateway check "$root/gateway.toml") || fail "$1 gateway check failed"
        where="on this system (not root: no chroot)"
    fi
    rm -r "$root"
    echo "$1: $said; starts $where"
    echo "$checked" | sed 's/^/    /'
}

for machine in ${*:-x86_64 aarch64}; do
    case $machine in
    x86_64 | aarch64) ;;
    *) fail "machine $machine: write x86_64 or aarch64" ;;
    esac
    # A profile is of one machine.
    layout=
    if [ -f "$out/runs-$machine.profdata" ]; then
        layout="-C profile-use=$(cd "$out" && pwd)/runs-$machine.profdata"
    fi
    link_static "$machine" "$layout"
    cargo build --locked --profile "$profile" --package bandmaster --target "$target"
    cp "${CARGO_TARGET_DIR:-target}/$target/$folder/bandmaster" "$out/bandmaster-$machine"
    if command -v readelf > /dev/null; then
        ! readelf -d "$out/bandmaster-$machine" | grep -q NEEDED || fail "$out/bandmaster-$machine needs a library"
        ! readelf -l "$out/bandmaster-$machine" | grep -q INTERP || fail "$out/bandmaster-$machine needs a loader"
    fi
    try "$out/bandmaster-$machine" "$machine"
done
