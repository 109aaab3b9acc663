// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counts the flows that pass the ports of a router, as the simulator's counter of a port does: each direction of a
// connection that carries data is a flow there, from its first data to its FIN or RST.
//
// Reading costs the same for any number of flows: the programs keep the sums. Flows that have fallen silent are taken out by
// the reader.

#include "packet.h"

enum { TO_ANOTHER_HOST = 3 }; // PACKET_OTHERHOST
enum { FLAGS = 13, FIN = 1, SYN = 2, RST = 4 };
enum { NO_EXIST = 1 };         // BPF_NOEXIST
enum { MOST_FLOWS = 262144, MOST_DEVICES = 2048 };

static u64 (*coarse_time)(void) = (void *)160;

// --- What the programs are told, and tell: the same layouts as in kernel/flows.rs.

struct name {
    u32 source[4], destination[4];
    u16 ports[2];
    u32 device; // number of the interface, doubled; one more where it arrives
    u32 protocol;
};

struct flow {
    u64 last;     // ns since the machine began
    u32 interval; // in which it was seen last
    u32 open;
};

struct count {
    u64 opened, closed; // flows
    u64 seen[2];        // flows, in all intervals of even and of odd number
    u64 left_out;       // packets of flows that there was no room for
};

MAP(INTERVAL, ARRAY, u32, u32, 1);
MAP(COUNTS, HASH, u32, struct count, MOST_DEVICES);
struct {
    int (*type)[HASH];
    struct name *key;
    struct flow *value;
    int (*max_entries)[MOST_FLOWS];
    int (*map_flags)[NO_PREALLOC];
} FLOWS SEC(".maps");

INLINE int look(struct __sk_buff *skb, u32 arrives) {
    u32 device = skb->ifindex << 1 | arrives, zero = 0;
    struct count *count = map_lookup(&COUNTS, &device);
    u32 *interval = map_lookup(&INTERVAL, &zero);
    struct packet packet = {};
    if (!count || !interval || skb->pkt_type == TO_ANOTHER_HOST || !parse(skb, &packet) || !packet.has_ports) return NEXT;
    u8 flags = 0;
    if (packet.protocol == TCP && skb_load(skb, packet.header + FLAGS, &flags, 1, FROM_NETWORK_HEADER)) return NEXT;
    // What is longer than 64 KiB tells no length.
    int has_data = skb->gso_segs > 1 || packet.bytes > packet.header + packet.transport;
    int begins = flags & SYN, ends = flags & (FIN | RST);
    // Acknowledgements take no share of the link that is worth counting.
    if (!has_data && !begins && !ends) return NEXT;
    struct name name = { .device = device, .protocol = packet.protocol };
    __builtin_memcpy(name.source, packet.source, sizeof(name.source));
    __builtin_memcpy(name.destination, packet.destination, sizeof(name.destination));
    __builtin_memcpy(name.ports, packet.ports, sizeof(name.ports));
    struct flow *flow = map_lookup(&FLOWS, &name);
    if (!flow) {
        if (!has_data) return NEXT;
        // Not silent, until the next lines say so too.
        struct flow new = { .last = coarse_time() };
        map_update(&FLOWS, &name, &new, NO_EXIST);
        flow = map_lookup(&FLOWS, &name);
        if (!flow) {
            __sync_fetch_and_add(&count->left_out, 1);
            return NEXT;
        }
        begins = 1;
    }
    flow->last = coarse_time();
    u32 now = *interval, before = flow->interval;
    if (has_data && before != now && __sync_val_compare_and_swap(&flow->interval, before, now) == before)
        __sync_fetch_and_add(&count->seen[now & 1], 1);
    if (packet.protocol != TCP) return NEXT;
    if (ends) {
        if (__sync_val_compare_and_swap(&flow->open, 1, 0) == 1) __sync_fetch_and_add(&count->closed, 1);
    } else if (begins && has_data) {
        if (__sync_val_compare_and_swap(&flow->open, 0, 1) == 0) __sync_fetch_and_add(&count->opened, 1);
    } else if (begins) {
        // Another connection with the same addresses and ports: it is one when it has data.
        if (__sync_val_compare_and_swap(&flow->open, 1, 0) == 1) __sync_fetch_and_add(&count->closed, 1);
        map_delete(&FLOWS, &name);
    }
    return NEXT;
}

SEC("classifier")
int departs(struct __sk_buff *skb) {
    return look(skb, 0);
}

SEC("classifier")
int arrives(struct __sk_buff *skb) {
    return look(skb, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
