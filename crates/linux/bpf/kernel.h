// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the programs share. Types of the kernel are named with the members used; the loader finds their places.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

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
static long (*skb_load)(const void *, u32, void *, u32, u32) = (void *)68;
enum { FROM_NETWORK_HEADER = 1 }; // enum bpf_hdr_start_off

struct __sk_buff { // as linux/bpf.h has it, up to the last member used
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family;
    u32 remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
    void *sk;
};
