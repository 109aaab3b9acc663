// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the programs share. Types of the kernel are named with the members used; the loader finds their places.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define KERNEL __attribute__((preserve_access_index))
#define AS_NETWORK(x) __builtin_bswap16(x)

#define MAP(name, kind, k, v, most)                                                                                    \
    struct {                                                                                                           \
        int (*type)[kind];                                                                                             \
        k *key;                                                                                                        \
        v *value;                                                                                                      \
        int (*max_entries)[most];                                                                                      \
    } name SEC(".maps")

enum { HASH = 1, ARRAY = 2, LRU_HASH = 9, SK_STORAGE = 24, RINGBUF = 27 }; // enum bpf_map_type

enum { NO_PREALLOC = 1, CLONE = 1 << 9 }; // BPF_F_*

// A value for each socket, which goes with it; with CLONE a connection takes it over from its listening socket.
#define OF_SOCKETS(name, v, flags)                                                                                     \
    struct {                                                                                                           \
        int (*type)[SK_STORAGE];                                                                                       \
        int *key;                                                                                                      \
        v *value;                                                                                                      \
        int (*map_flags)[NO_PREALLOC | (flags)];                                                                       \
    } name SEC(".maps")

// enum bpf_func_id
static void *(*map_lookup)(const void *, const void *) = (void *)1;
static long (*map_update)(const void *, const void *, const void *, u64) = (void *)2;
static long (*map_delete)(const void *, const void *) = (void *)3;
