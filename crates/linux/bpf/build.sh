#!/bin/sh
# Builds the programs that run in the kernel. The objects are committed, so that nobody else needs a compiler for them;
# the check `bpf` of ci.sh builds them again and compares every byte.
#
#   crates/linux/bpf/build.sh [FOLDER]      to FOLDER; without it, next to the sources
#
# Takes the clang and the llvm-strip named in COMPILER: another version may give other bytes. Exit code 77 without it.
set -eu
cd "$(dirname "$0")"

out=${1:-.}
compiler=$(cat COMPILER)
release=${compiler%%.*}
clang=$(command -v "clang-$release" || command -v clang) || { echo "missing: clang-$release"; exit 77; }
strip=$(command -v "llvm-strip-$release" || command -v llvm-strip) || { echo "missing: llvm-strip-$release (package llvm-$release)"; exit 77; }
for program in "$clang" "$strip"; do
    "$program" --version | grep -qw "$compiler" || { echo "missing: $program of version $compiler"; exit 77; }
done

for source in *.c; do
    object=$out/${source%.c}.o
    "$clang" -target bpfel -mcpu=v3 -O2 -g -Wall -Wextra -Werror -ffile-prefix-map="$PWD=." -fdebug-compilation-dir=. \
        -c "$source" -o "$object"
    # The types stay (BTF), which the loader needs; what a debugger would read goes.
    "$strip" -g "$object"
done
