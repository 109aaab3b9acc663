// SPDX-License-Identifier: MIT OR Apache-2.0
//
// For measurements only: makes a packet what it was before each of many runs, of a flow drawn among many, and hands it to another
// program. Without this a window that is lowered stays lowered in all runs but the first.

#include "packet.h"

enum { PROGRAMS = 3 }; // BPF_MAP_TYPE_PROG_ARRAY
enum { ETHERNET = 14, ADDRESSES = ETHERNET + 12, TRANSPORT = ETHERNET + 20, TCP_HEADER = 20 };
enum { NUMBERS = TRANSPORT + 4, WINDOW = TRANSPORT + 14 };

static long (*tail_call)(void *, const void *, u32) = (void *)12;

// The same layout as in tests/host/windows.rs.
struct settings {
    u64 random;
    u32 flows;    // among which one is drawn
    u32 arrives;  // the packet is the receiver's
    u32 fields;   // window and checksum, as the packet has them
    u32 program;  // that is measured
};

MAP(SETTINGS, ARRAY, u32, struct settings, 1);
MAP(NEXT_PROGRAM, PROGRAMS, u32, u32, 2);

SEC("classifier")
int again(struct __sk_buff *skb) {
    u32 zero = 0;
    struct settings *settings = map_lookup(&SETTINGS, &zero);
    u8 *begin = (u8 *)(long)skb->data, *end = (u8 *)(long)skb->data_end;
    if (!settings || begin + TRANSPORT + TCP_HEADER > end) return NEXT;
    settings->random = settings->random * 6364136223846793005ULL + 1442695040888963407ULL;
    u32 flow = (settings->random >> 32) * settings->flows >> 32, arrives = settings->arrives;
    // The sender's address ends with the upper bits of the flow's number, its port with the lower ones.
    u32 sender = arrives ? 4 : 0, port = arrives ? 2 : 0;
    *(u16 *)(begin + ADDRESSES + sender + 2) = AS_NETWORK((u16)(flow >> 14));
    *(u16 *)(begin + TRANSPORT + port) = AS_NETWORK((u16)(flow & 0x3fff));
    // The data and their acknowledgements move on by up to 64 KiB.
    *(u16 *)(begin + NUMBERS + (arrives ? 6 : 2)) = (u16)(settings->random >> 16);
    *(u32 *)(begin + WINDOW) = settings->fields;
    tail_call(skb, &NEXT_PROGRAM, settings->program);
    return NEXT;
}

// What the other program is compared with.
SEC("classifier")
int nothing(struct __sk_buff *skb) {
    (void)skb;
    return NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
