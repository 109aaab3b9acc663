# What the scripts of this folder share; they are in the top folder when they read it.

out=${CARGO_TARGET_DIR:-target}/static
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# Sets `architecture` to Debian's name of machine $1, for which there must be a program.
need_program() {
    case $1 in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) fail "machine $1: write x86_64 or aarch64" ;;
    esac
    [ -x "$out/bandmaster-$1" ] || fail "no $out/bandmaster-$1: run packaging/static.sh $1"
}

# Sets `target` for machine $1, and lets cargo link its programs without libraries: rust-lld links for every machine, and the objects
# that begin a program come with the target. $2: more flags.
link_static() {
    target=$1-unknown-linux-musl
    if command -v rustup > /dev/null; then
        rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    fi
    name=$(echo "$target" | tr 'a-z-' 'A-Z_')
    flags="-C target-feature=+crt-static -C link-self-contained=yes -C linker-flavor=ld.lld"
    export "CARGO_TARGET_${name}_LINKER=rust-lld" "CARGO_TARGET_${name}_RUSTFLAGS=$flags $2"
}
