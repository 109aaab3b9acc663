#!/usr/bin/env bash
# The checks of the project, in three sizes, or by name:
#   ./ci.sh quick        before a commit: format, words, lints, every test that needs no lab of namespaces
#   ./ci.sh              complete, what CI runs
#   ./ci.sh long         hours: a million hostile inputs for each reader, every claim, soaks, faults, installs, benches
#   ./ci.sh fmt clippy   some
# Installs what is missing where it may; a check whose tool cannot be had is skipped by name.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never} CARGO_INCREMENTAL=0
exec </dev/null

COMPLETE=(fmt words clippy bpf test doc wasm pcap flent report site python msrv deny advisories readme)
QUICK=(fmt words clippy test)
LONG=(fuzz claims classes soak faults agents switches whatif pythons installs bench)
MSRV=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml).0

MDBOOK=0.5.4

# With the feature that few need: figures as PDF and PNG. One set of features, so that nothing is built twice.
ALL=(--workspace --features bandmaster/pictures)

passed=() failed=() skipped=() skipped_tests=() took=()
MISSING=77 # exit code of a check whose tool cannot be had

missing() {
    echo "missing: $*"
    return $MISSING
}

install_package() { # command package
    command -v "$1" >/dev/null && return
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || { missing "$1 (package $2): install it, or run this as root"; return; }
        as_root=(sudo -n)
    fi
    command -v apt-get >/dev/null || { missing "$1: no apt-get here, install it by hand"; return; }
    { "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"; } ||
        missing "$1: apt-get cannot install $2"
}

rustup_has() { # "component list" rustfmt
    rustup $1 list --installed 2>/dev/null | grep -q "^$2"
}

need_component() {
    rustup_has component "$1" || rustup component add "$1" || missing "$1: rustup component add $1"
}

need_target() {
    rustup_has target "$1" || rustup target add "$1" || missing "target $1: rustup target add $1"
}

need_toolchain() {
    rustup toolchain list 2>/dev/null | grep -q "^$1" || rustup toolchain install "$1" --profile minimal ||
        missing "toolchain $1: rustup toolchain install $1"
}

need_deny() {
    cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked ||
        missing "cargo-deny: cargo install cargo-deny --locked"
}

check_fmt() { need_component rustfmt && cargo fmt --all --check; }

# Phrases that hide who does what, in pages and outside of code. Texts of the list in docs/claims.md are in scenario files.
check_words() {
    command -v python3 >/dev/null || { missing python3; return; }
    find README.md ARCHITECTURE.md CONTRIBUTING.md docs -name '*.md' -print0 | sort -z | xargs -0 python3 -c '
import re, sys
phrases = ("that has come", "beside", "anew", "of each", "what is left", "all the same", "by itself", "said", "told", "whoever", "as there")
pattern = re.compile(r"\b(?:%s)\b" % "|".join(phrases).replace(" ", r"\s+"), re.IGNORECASE)
found = 0
for page in sys.argv[1:]:
    code = r"^ *```.*?^ *```|`(?:[^`\n]|\n(?!\n))*`"
    text = re.sub(code, lambda code: re.sub(r"\S", "`", code[0]), open(page).read(), flags=re.S | re.M)
    for match in pattern.finditer(text):
        found += 1
        print("%s:%d: \"%s\"" % (page, text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())))
sys.exit(found > 0)'
}

check_clippy() { need_component clippy && cargo clippy "${ALL[@]}" --all-targets --locked -- -D warnings; }

# Tests in network namespaces need these. Without them they report that they are skipped, and why.
install_network_tools() {
    install_package ip iproute2
    install_package nft nftables
    install_package ethtool ethtool
    install_package iperf3 iperf3
    install_package bpftool bpftool
    install_package h2load nghttp2-client
    # Debian starts a daemon that it installs, where systemd runs.
    if [ ! -d /run/systemd/system ]; then
        install_package nginx nginx-light
        install_package ovs-vswitchd openvswitch-switch
        install_package snmpd snmpd
        install_package lldpctl lldpd
    fi
    return 0
}

# Runs a command, and counts what it reports as skipped.
counted() {
    local output code
    output=$(mktemp) || return
    "$@" 2>&1 | tee "$output"
    code=$?
    mapfile -t -O "${#skipped_tests[@]}" skipped_tests < <(grep -oE 'skipped: .*' "$output")
    rm -f "$output"
    return $code
}

run_tests() { counted cargo test --locked "$@"; }

check_test() {
    install_network_tools
    run_tests "${ALL[@]}" --no-fail-fast
}

# The programs that run in the kernel are built from their sources, byte by byte.
check_bpf() {
    install_package clang-19 clang-19 || return
    install_package llvm-strip-19 llvm-19 || return
    local out code=0 object
    out=$(mktemp -d) || return
    crates/linux/bpf/build.sh "$out" || code=$?
    for object in crates/linux/bpf/*.o; do
        [ $code != 0 ] || cmp "$object" "$out/${object##*/}" || code=1
    done
    rm -rf "$out"
    return $code
}

# Gateways that may load no program into the kernel count by classes and rules.
check_classes() {
    install_network_tools
    BANDMASTER_TEST_WITHOUT_PROGRAMS=1 run_tests "${ALL[@]}" --test gateway -- --skip iperf3 --skip order::
}

check_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }

check_wasm() { need_target wasm32-unknown-unknown && cargo test "${ALL[@]}" --locked --test wasm -- --ignored; }

check_whatif() { cargo test --release --workspace --locked --test cli five_hundred -- --ignored; }

check_pcap() { install_package tshark tshark && cargo test "${ALL[@]}" --locked --test cli capture -- --ignored; }

check_flent() { # its own reader and plots; python3 with venv
    local venv=target/flent
    [ -x $venv/bin/flent ] || { python3 -m venv $venv && $venv/bin/pip -q install flent setuptools; } ||
        { missing "flent: python3 -m venv, and pip install flent"; return; }
    BANDMASTER_FLENT=$PWD/$venv/bin/flent cargo test "${ALL[@]}" --locked --test cli export -- --ignored
}

# A report in a browser and on paper.
check_report() {
    install_package chromium chromium || return
    install_package pdftotext poppler-utils || return
    run_tests "${ALL[@]}" --test cli browser:: -- --ignored
}

# The documentation as a site: its links, and its pages in a browser.
check_site() {
    command -v python3 >/dev/null || { missing python3; return; }
    [ "$(mdbook --version 2>/dev/null)" = "mdbook v$MDBOOK" ] ||
        cargo install mdbook --locked --version $MDBOOK --no-default-features --features search --debug ||
        { missing "mdbook: cargo install mdbook"; return; }
    install_package chromium chromium
    (cd site && mdbook build) && counted python3 site/check.py target/site
}

# The package in a fresh venv, next to the program, and what tutorials and cookbook run: python3 with venv.
check_python() {
    install_network_tools
    install_package curl curl || return
    local venv=target/python wheels=target/wheels
    rm -rf $venv $wheels
    python3 -m venv $venv || { missing "python3 -m venv"; return; }
    cargo build --release --locked -p bandmaster -p bandmaster-python &&
        MATURIN_PEP517_ARGS=--locked $venv/bin/pip -q wheel --no-deps -w $wheels ./python || return
    local wheel
    wheel=$(echo $wheels/bandmaster-*.whl)
    [ "$(stat -c %s "$wheel")" -lt 6000000 ] || { echo "$wheel has 6 MB and more"; return 1; }
    $venv/bin/pip -q install "$wheel[test]" || { missing "what the package's tests need: pip install"; return; }
    counted test_package
}

test_package() {
    (
        cd python && PATH=$PWD/../target/python/bin:$PATH BANDMASTER=$PWD/../target/release/bandmaster
        export BANDMASTER
        ruff check . ../site && ruff format --check . ../site && mypy bandmaster examples tests ../site/check.py &&
            pytest -q -rs --durations=5
    )
}

# The same wheel in other versions of CPython, as Maven Central packs them: the examples of docstrings.
check_pythons() {
    command -v mvn >/dev/null || { missing "mvn: install Maven"; return; }
    [ -f target/wheels/bandmaster-*.whl ] || check_python || return
    local site=$PWD/target/pythons/site version folder code=0
    rm -rf "$site"
    python3 -m zipfile -e target/wheels/bandmaster-*.whl "$site" || return
    for version in 3.10.8-1.5.8 3.13.5-1.5.12; do
        folder=$PWD/target/pythons/$version
        mvn -q -B dependency:copy -Dartifact=org.bytedeco:cpython:$version:jar:linux-x86_64 -DoutputDirectory="$folder" &&
            python3 -m zipfile -e "$folder"/*.jar "$folder" || { missing "CPython $version: mvn"; return; }
        folder=$folder/org/bytedeco/cpython/linux-x86_64
        chmod +x "$folder"/bin/python3.??
        LD_LIBRARY_PATH=$folder/lib:$folder PYTHONHOME=$folder PYTHONPATH=$site "$folder"/bin/python3.?? -c '
import doctest, importlib, pkgutil, sys, bandmaster
names = [f"bandmaster.{module.name}" for module in pkgutil.iter_modules(bandmaster.__path__)]
results = [doctest.testmod(importlib.import_module(name)) for name in names]
print(sys.version, results)
sys.exit(any(result.failed for result in results) or sum(result.attempted for result in results) < 20)' || code=1
    done
    return $code
}

# Each way to install, in a root that has nothing else; and the crates as crates.io would get them.
check_installs() {
    [ "$(id -u)" = 0 ] || { missing "root, for roots of their own"; return; }
    install_package debootstrap debootstrap || return
    install_package buildah buildah
    install_package qemu-aarch64-static qemu-user-static
    counted packaging/walk.sh && cargo publish --workspace --dry-run --locked --allow-dirty
}

check_msrv() { need_toolchain "$MSRV" && cargo "+$MSRV" check --workspace --all-targets --locked; }

check_deny() { need_deny && cargo deny --locked check --hide-inclusion-graph licenses bans sources; }

check_advisories() {
    need_deny || return
    cargo deny --locked fetch db || { missing "the advisory database cannot be reached"; return; }
    cargo deny --locked check --hide-inclusion-graph advisories
}

check_readme() {
    local out
    out=$(mktemp -d) || return
    cargo run --release --locked -- reproduce bas --quick --out "$out/bas"
    local code=$?
    rm -rf "$out"
    return $code
}

# Every reader of files and messages, every role, and runs drawn from the schema.
check_fuzz() {
    BANDMASTER_FUZZ=1000000 BANDMASTER_FUZZ_RUNS=10000 run_tests --workspace --test fuzz --test controllers
}

# Every claim of every paper, in full.
check_claims() {
    local out code=0 paper
    out=$(mktemp -d) || return
    for paper in bas er2bc fbqm opentcp published qcbf; do
        cargo run --release --locked -- reproduce "$paper" --out "$out/$paper" || code=1
    done
    rm -rf "$out"
    return $code
}

# A day of the gateways, and one of flows that BAS's roles hear of.
check_soak() {
    cargo run --release --locked -- run scenarios/er2bc/soak.toml --no-report &&
        BANDMASTER_DAY=24 run_tests -p bandmaster-core --lib -- --exact --nocapture \
            scheme::bas::tests::of_a_day_of_flows_nothing_is_left
}

# Ten minutes of two gateways in namespaces, to which troubles drawn at random happen; the seed is printed.
check_faults() {
    install_network_tools
    BANDMASTER_FAULTS=600 run_tests -p bandmaster-linux --test gateway -- --exact --nocapture \
        faults::whatever_goes_wrong_is_told_and_over_in_time
}

# A quarter of an hour of a controller and three agents in namespaces, the same.
check_agents() {
    install_network_tools
    BANDMASTER_SOAK=900 run_tests -p bandmaster-linux --test host -- --exact --nocapture \
        soak::whatever_goes_wrong_all_is_right_again_in_time
}

# A quarter of an hour of a switch with QCBF and one with FBQM, the same. MPTCP by two routers, and what a segment takes.
check_switches() {
    install_network_tools
    BANDMASTER_SOAK=900 run_tests -p bandmaster-linux --test host -- --nocapture wear:: &&
        BANDMASTER_FUZZ=1000000 run_tests -p bandmaster-linux --test host -- --nocapture --test-threads=1 mptcp:: windows::
}

check_bench() {
    cargo bench --workspace --locked || return
    [ -x target/python/bin/pytest ] || check_python || return
    (cd python && ../target/python/bin/pytest -q -s -m timing)
}

run_check() {
    echo "=== $1"
    local began=$SECONDS
    "check_$1"
    case $? in
        0) passed+=("$1") ;;
        "$MISSING") skipped+=("$1") ;;
        *) failed+=("$1") ;;
    esac
    took+=("$1 $((SECONDS - began)) s")
}

case "${1-}" in
    "") CHECKS=("${COMPLETE[@]}") ;;
    quick) CHECKS=("${QUICK[@]}"); export BANDMASTER_NO_LAB=1 BANDMASTER_FUZZ=1000 BANDMASTER_FUZZ_RUNS=50 ;;
    long) CHECKS=("${LONG[@]}") ;;
    *) CHECKS=("$@") ;;
esac
for check in "${CHECKS[@]}"; do
    [[ " ${COMPLETE[*]} ${LONG[*]} " == *" $check "* ]] ||
        { echo "no check \`$check\`; sizes: quick, long; checks: ${COMPLETE[*]} ${LONG[*]}" >&2; exit 2; }
done

install_package cc build-essential || exit 1
command -v cargo >/dev/null || { echo "missing: cargo: see https://rustup.rs" >&2; exit 1; }
for check in "${CHECKS[@]}"; do run_check "$check"; done

echo "=== checks"
[ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
[ ${#skipped[@]} -eq 0 ] || echo "skipped: ${skipped[*]}"
[ ${#skipped_tests[@]} -eq 0 ] || printf '%s\n' "${skipped_tests[@]}"
printf 'took: %s\n' "${took[@]}"
echo "${#passed[@]} passed, ${#failed[@]} failed, ${#skipped[@]} skipped; ${#skipped_tests[@]} tests skipped"
[ ${#failed[@]} -eq 0 ]
