#!/bin/bash
# Walks each way to install bandmaster, in a root that has nothing else. Each ends with the table of the README's first command.
#
#   packaging/walk.sh [static] [deb] [image] [pip] [cargo] [machines]        all when none is named
#
# Takes root, and debootstrap; image takes buildah, cargo the toolchain, machines qemu-user-static. Builds what it installs, with the
# profile PROFILE.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/common.sh
machine=$(uname -m)
architecture=$(dpkg --print-architecture)
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
FIRST=(reproduce bas --quick --no-report)

# The table of the first command: a row of plain TCP, and one of the scheme.
has_table() {
    grep -q "norm. Jain" "$1" && grep -q "^ *conventional .*±" "$1" && grep -q "claims: " "$1" ||
        { cat "$1"; fail "$2: no table"; }
    echo "walk.sh: $2: $(grep "claims: " "$1" | tail -1)"
}

# A root of Debian without anything that its package manager does not need, and packages $2.
debian() {
    local mirror suite
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    debootstrap --variant=minbase --include="$2" "$suite" "$1" "$mirror" > "$scratch/debootstrap.log" 2>&1 ||
        { tail "$scratch/debootstrap.log"; fail "debootstrap"; }
    ! chroot "$1" sh -c 'command -v cargo rustc cc' || fail "this root has a toolchain"
}

walk_static() {
    mkdir "$scratch/static"
    cp "$out/bandmaster-$machine" "$scratch/static/bandmaster"
    chroot "$scratch/static" /bandmaster "${FIRST[@]}" > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail static; }
    has_table "$scratch/log" static
}

walk_deb() {
    local root=$scratch/deb
    debian "$root" libcap2-bin
    packaging/deb.sh "$machine"
    cp "$out/bandmaster_${version}_$architecture.deb" "$root/tmp/bandmaster.deb"
    (cd "$root" && find . -xdev | sort) > "$scratch/before"
    chroot "$root" dpkg -i /tmp/bandmaster.deb
    chroot "$root" getent passwd bandmaster || fail "deb: no user"
    [ "$(chroot "$root" stat -c "%U %G %a" /etc/bandmaster)" = "root bandmaster 750" ] || fail "deb: /etc/bandmaster is not the daemons'"
    chroot "$root" bandmaster "${FIRST[@]}" > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail deb; }
    has_table "$scratch/log" deb
    chroot "$root" dpkg --purge bandmaster
    (cd "$root" && find . -xdev | sort) > "$scratch/after"
    comm -13 "$scratch/before" "$scratch/after" | grep bandmaster | grep -v /var/lib/dpkg/info && fail "deb: left after purge"
    return 0
}

walk_image() {
    command -v buildah > /dev/null || { echo "skipped: image: no buildah"; return; }
    packaging/image.sh "$machine"
    # What the archive has, unpacked: its layer is the program alone.
    local container
    container=$(buildah from "oci-archive:$out/bandmaster-$version-$architecture.oci.tar")
    local root
    root=$(buildah mount "$container")
    chroot "$root" /bandmaster "${FIRST[@]}" > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail image; }
    buildah umount "$container" > /dev/null
    buildah rm "$container" > /dev/null
    has_table "$scratch/log" image
}

walk_pip() {
    local root=$scratch/pip
    debian "$root" python3,python3-venv
    python3 -m venv "$scratch/venv"
    MATURIN_PEP517_ARGS=--locked "$scratch/venv/bin/pip" -q wheel --no-deps -w "$root/tmp" ./python
    cp scenarios/examples/dumbbell.toml "$root/tmp/"
    chroot "$root" sh -ec 'python3 -m venv /venv && /venv/bin/pip -q install --no-index /tmp/bandmaster-*.whl'
    chroot "$root" /venv/bin/python -c '
import bandmaster as bm
result = bm.Scenario("/tmp/dumbbell.toml").run()
print(result)
assert result.claims and all(claim.status == "holds" for claim in result.claims), result.claims' > "$scratch/log" 2>&1 ||
        { cat "$scratch/log"; fail pip; }
    cat "$scratch/log"
    echo "walk.sh: pip: ok"
}

walk_cargo() {
    # A user who has the toolchain and nothing of ours.
    CARGO_TARGET_DIR=$scratch/target cargo install --locked --path crates/cli --root "$scratch/cargo" ${PROFILE:+--profile "$PROFILE"}
    (cd "$scratch" && env -i PATH="$scratch/cargo/bin" HOME="$scratch" bandmaster "${FIRST[@]}") > "$scratch/log" 2>&1 ||
        { cat "$scratch/log"; fail cargo; }
    has_table "$scratch/log" cargo
}

# Commands of `bandmaster` whose reports must be the same bytes on every machine: each scheme, UDP, TCP and its congestion
# controls, queue disciplines, changing links, statistics over a few trials, axes with logarithms.
SAME=(
    "reproduce bas --quick"
    "run scenarios/bas/fixed.toml --quick --trials 1 --base"
    "run scenarios/examples/dumbbell.toml --trials 3"
    "run scenarios/examples/incast-star.toml --quick --trials 1"
    "run scenarios/examples/queues.toml --quick --trials 1"
    "run scenarios/er2bc/table5-tcp.toml --trials 2 --variant er2bc --variant robust"
    "run scenarios/er2bc/table6-udp.toml --trials 2 --variant er2bc --variant robust"
    "run scenarios/fbqm/paper.toml --quick --trials 1"
    "run scenarios/opentcp/small.toml --quick --trials 1"
    "run scenarios/qcbf/shallow.toml --quick --trials 1 --base"
    "run scenarios/figures/cellular.toml --quick --trials 1"
    "run scenarios/figures/slowdown.toml --quick --trials 1"
    "run scenarios/validation/recovery.toml --quick --trials 1"
    "run scenarios/validation/linux-bbr.toml --quick --trials 1"
    "run scenarios/queues/cake.toml --quick --trials 1"
)

# The program of the other machine, under qemu in a root that has nothing else, writes what this machine's writes.
walk_machines() {
    local other=aarch64 each root files=0 emulator command name
    [ "$machine" = x86_64 ] || other=x86_64
    emulator=$(command -v "qemu-$other-static") ||
        { echo "skipped: machines: no qemu-$other-static (Debian: qemu-user-static)"; return; }
    packaging/static.sh "$machine" "$other"
    for each in "$machine" "$other"; do
        root=$scratch/machines/$each
        mkdir -p "$root"
        cp -r scenarios policies "$root"
        cp "$out/bandmaster-$each" "$root/bandmaster"
        local run=(/bandmaster)
        [ "$each" = "$machine" ] || { cp "$emulator" "$root/qemu"; run=(/qemu /bandmaster); }
        chroot "$root" "${run[@]}" --version > "$root/version"
        (cd "$root" && ls scenarios/*/*.toml) | xargs chroot "$root" "${run[@]}" check > "$root/checked" ||
            { tail "$root/checked"; fail "machines: check on $each"; }
        for command in "${SAME[@]}"; do
            name=${command//[^a-z0-9]/-}
            # Exit code 1: a claim fails with so few trials. It must fail on both.
            chroot "$root" "${run[@]}" $command --out "$name" > "$root/$name.log" 2> "$scratch/log" || [ $? = 1 ] ||
                { cat "$scratch/log"; fail "machines: $command on $each"; }
        done
        rm -rf "$root"/{bandmaster,qemu,scenarios,policies}
    done
    diff -r "$scratch/machines/$machine" "$scratch/machines/$other" || fail "machines: $other does not write what $machine does"
    files=$(find "$scratch/machines/$machine" -type f | wc -l)
    echo "walk.sh: machines: $other and $machine write the same bytes, $files files"
}

[ "$(id -u)" = 0 ] || fail "needs root: it makes roots"
for way in ${*:-static deb image pip cargo machines}; do
    case $way in
    static | deb | image) [ -x "$out/bandmaster-$machine" ] || packaging/static.sh "$machine" ;;
    pip | cargo | machines) ;;
    *) fail "$way: write static, deb, image, pip, cargo or machines" ;;
    esac
    "walk_$way"
done
