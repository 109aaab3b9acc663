// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FBQM at a port: the class of each packet that departs, by the rate of its flow, and early drops for all classes together.
//
// Rates are those of core's sketch (qdisc/fbqm/sketch.rs): four rows of cells, each with the bytes of this interval and their
// average over the intervals before. The daemon ends intervals, and says which rates begin a class. The queue that RED
// averages is counted here: what has arrived, less what the port can send in the time since. While the daemon is silent, classes
// stay as they are.

#include "packet.h"

enum { DROP = 2 };                                     // TCX_DROP
enum { VLAN = 0x8100, PROVIDER_VLAN = 0x88a8, TAG = 4 };
enum { PERCPU_ARRAY = 6 };
enum { ROWS = 4, MOST_CLASSES = 64, UNREAD = MOST_CLASSES, PLACES = 6, AGES = 1 << PLACES, FIRST_CLASS = 0x10010 };
enum { BYTE_TIME = 16, WEIGHT = 24, SLOPE = 16, SIXTEENTHS = 4 }; // binary places
#define ONE (1ULL << 32)

typedef long long s64;

static u64 (*time_now)(void) = (void *)5;
static u32 (*random_number)(void) = (void *)7;
static long (*mark_congestion)(struct __sk_buff *) = (void *)97;

// --- What the program is told, and tells: the same layouts as in kernel/fbqm.rs.

struct settings {
    u64 salt, interval;
    u64 mask, bits;            // cells of a row, less one, and as a power of two
    u64 acts;                  // 0: nothing is changed, only counted
    u64 ecn, by_length;        // marks; an early drop is as much likelier as a packet is longer than the mean
    u64 mean_packet;           // bytes
    u64 byte_time;             // ns to send a byte
    u64 limit, lower, upper;   // of the queue and of its average: ns to send it
    u64 weight, slope;         // of an arrival in the average; probability (times 2^32) by ns above `lower`
    u64 share;                 // of a flow: bytes an interval
    u64 fair;                  // early drops are of flows above their share, not RED's
    u64 aged[3][AGES];         // what is left of the average after n, 64 n, 4096 n sixteenths of a mean packet's time, idle
};

struct cell {
    u32 bytes, average, interval;
};

struct port {
    u64 until;   // when all will have been sent
    u64 average; // of the queue, ns to send it
    u64 spared;  // arrivals since the last early drop, and one; 0: the average is below `lower`
};

struct counts {
    u64 packets, bytes; // that arrived
    u64 begun;          // flows seen for the first time in an interval
    u64 early, marked, full;
};

MAP(SETTINGS, ARRAY, u32, struct settings, 1);
// Classes from 1 on hold rates above these, in bytes an interval.
MAP(BEGINS, ARRAY, u32, u32, MOST_CLASSES);
MAP(PORT, ARRAY, u32, struct port, 1);
MAP(CELLS, ARRAY, u32, struct cell, ROWS);
MAP(COUNTS, PERCPU_ARRAY, u32, struct counts, MOST_CLASSES + 1);

// The kernel looks through each of these functions once, by itself. Within `departs` it would be more than it looks through
// when it has to mind paths that a processor takes by mistake (without CAP_PERFMON).
#define APART __attribute__((noinline))

INLINE struct settings *told(void) {
    u32 zero = 0;
    return map_lookup(&SETTINGS, &zero);
}

INLINE u64 mix(u64 x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// All ones for numbers below zero. Without a branch there is one path only to look through; written in C, the compiler puts
// branches back.
INLINE u64 negative(u64 x) {
    asm("%0 s>>= 63" : "+r"(x));
    return x;
}

INLINE u64 least_of(u64 a, u64 b) {
    return b + ((a - b) & negative(a - b));
}

// The packet's addresses, ports, protocol and VLAN, mixed with `salt`; 0: it cannot be read.
APART u64 identify(struct __sk_buff *skb, u64 salt) {
    u64 words[5] = {}; // addresses; ports, VLAN and protocol
    u8 header[40], next;
    u32 at = 0, ports = 0, is_part = 0, tag = skb->vlan_present ? skb->vlan_tci & 0xfff : 0;
    u16 protocol = skb->protocol;
    if (protocol == AS_NETWORK(VLAN) || protocol == AS_NETWORK(PROVIDER_VLAN)) {
        if (skb_load(skb, 0, header, TAG, FROM_NETWORK_HEADER) || skb->vlan_present) return 0;
        tag = (header[0] & 15) << 8 | header[1];
        protocol = *(u16 *)(header + 2);
        at = TAG;
    }
    if (protocol == AS_NETWORK(ETHERTYPE_IPV4)) {
        if (skb_load(skb, at, header, 20, FROM_NETWORK_HEADER) || header[0] >> 4 != 4) return 0;
        __builtin_memcpy(words, header + 12, 8);
        next = header[9];
        is_part = (header[6] & 0x3f) | header[7]; // fragments are a flow of no ports
        at += (header[0] & 15) * 4;
    } else if (protocol == AS_NETWORK(ETHERTYPE_IPV6)) {
        if (skb_load(skb, at, header, 40, FROM_NETWORK_HEADER) || header[0] >> 4 != 6) return 0;
        __builtin_memcpy(words, header + 8, 32);
        next = header[6];
        at += 40;
        for (int i = 0; i < MOST_EXTENSIONS; i++) { // hop-by-hop, routing, destination options
            if (next != 0 && next != 43 && next != 60) break;
            if (skb_load(skb, at, header, 2, FROM_NETWORK_HEADER)) return 0;
            next = header[0];
            at += (header[1] + 1) * 8;
        }
    } else {
        return 0;
    }
    if (!is_part && (next == TCP || next == UDP) && skb_load(skb, at, &ports, 4, FROM_NETWORK_HEADER)) return 0;
    words[4] = (u64)ports << 32 | tag << 8 | next;
    u64 mixed = salt;
    for (int i = 0; i < 5; i++) {
        mixed = (mixed ^ words[i]) * 0x9e3779b97f4a7c15;
        mixed ^= mixed >> 32;
    }
    mixed = mix(mixed);
    return mixed ? mixed : 1;
}

// Bytes an interval of the flow, averaged up to the end of the last one; counts this packet. The upper half is 1 for the first
// packet of the flow in this interval.
APART u64 measure(u64 flow, u32 length) {
    struct settings *settings = told();
    if (!settings) return 0;
    struct cell *cells[ROWS];
    u64 bytes[ROWS], average[ROWS], least = ~0U, rate = ~0U;
    u32 interval = settings->interval;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        u32 slot = (row << (settings->bits & 31)) + ((flow >> (16 * row)) & settings->mask);
        struct cell *cell = cells[row] = map_lookup(&CELLS, &slot);
        if (!cell) return 0;
        u64 passed = (u32)(interval - cell->interval), is_now = negative(passed - 1);
        average[row] = (cell->average + (cell->bytes & ~is_now)) >> ((passed | negative(63 - passed)) & 63);
        bytes[row] = cell->bytes & is_now;
        rate = least_of(rate, average[row]);
        least = least_of(least, bytes[row]);
    }
    u64 begun = negative(bytes[0] - 1) & 1;
    least = least_of(least + length, ~0U);
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        cells[row]->interval = interval;
        cells[row]->average = average[row];
        cells[row]->bytes = bytes[row] + least - least_of(bytes[row], least);
    }
    return begun << 32 | rate;
}

// How many of the boundaries are below the rate.
APART u32 class_of(u32 rate) {
    u32 class = 0;
#pragma unroll
    for (u32 step = MOST_CLASSES / 2; step; step /= 2) {
        u32 at = class + step - 1;
        u32 *begin = map_lookup(&BEGINS, &at);
        if (!begin) return 0;
        class += negative((u64)*begin - rate) & step;
    }
    return class;
}

// The average is what it was, aged by the time in which nothing was to be sent.
APART u64 aged(u64 average, u64 idle) {
    struct settings *settings = told();
    if (!settings) return 0;
    u64 mean = settings->mean_packet * settings->byte_time >> BYTE_TIME;
    u64 sixteenths = (idle << SIXTEENTHS) / (mean ? mean : 1);
    if (idle >> 40 || sixteenths >> 3 * PLACES) return 0;
    for (int digit = 0; digit < 3; digit++)
        average = average * settings->aged[digit][(sixteenths >> digit * PLACES) & (AGES - 1)] >> WEIGHT;
    return average;
}

// RED's word on a packet that is read.
APART int is_early(u64 average, u32 length) {
    u32 zero = 0;
    struct settings *settings = told();
    struct port *port = map_lookup(&PORT, &zero);
    if (!settings || !port) return 0;
    if (average < settings->lower) {
        port->spared = 0;
        return 0;
    }
    u64 chance = (average - settings->lower) * settings->slope >> SLOPE;
    if (settings->by_length) chance = chance * length / settings->mean_packet;
    u64 share = port->spared * chance;
    port->spared++;
    if (average < settings->upper && share < ONE && (u64)random_number() * (ONE - share) >> 32 >= chance) return 0;
    port->spared = 1;
    return 1;
}

// Approximate fair dropping: by what the flow has above its share, which falls from twice that at `lower` to half at `upper`.
APART int is_excess(u64 average, u64 rate) {
    struct settings *settings = told();
    if (!settings || average < settings->lower) return 0;
    u64 load = average < settings->upper ? ((average - settings->lower) << 16) / (settings->upper - settings->lower) : 1 << 16;
    u64 share = settings->share * ((2 << 16) - load * 3 / 2) >> 16;
    return rate > share && (u64)random_number() * rate >> 32 < rate - share;
}

SEC("classifier")
int departs(struct __sk_buff *skb) {
    u32 zero = 0, class = 0, where = UNREAD, rate = 0;
    u64 begun = 0, now = time_now(), queue = 0;
    struct settings *settings = told();
    struct port *port = map_lookup(&PORT, &zero);
    if (!settings || !port) return NEXT;
    u32 length = skb->wire_len;
    u64 flow = identify(skb, settings->salt);
    if (flow) {
        u64 measured = measure(flow, length);
        rate = measured;
        begun = measured >> 32;
        where = class = class_of(rate);
    }
    struct counts *counts = map_lookup(&COUNTS, &where);
    if (!counts) return NEXT;
    counts->packets++;
    counts->bytes += length;
    counts->begun += begun;

    u64 until = port->until, average = port->average;
    if (until > now) {
        queue = until - now;
        average += (s64)(queue - average) * (s64)settings->weight >> WEIGHT;
    } else {
        average = aged(average, now - until);
        __sync_val_compare_and_swap(&port->until, until, now);
    }
    port->average = average;
    u64 need = length * settings->byte_time >> BYTE_TIME;
    int early = 0;
    if (settings->acts) {
        skb->priority = FIRST_CLASS + class;
        if (where != UNREAD)
            early = settings->fair ? is_excess(average, rate) : is_early(average, length);
    }
    if (early && average < settings->upper && settings->ecn && mark_congestion(skb)) {
        counts->marked++;
        early = 0;
    }
    // What offload merged may be longer than the limit: at an empty port it is let in, or it would never be.
    if (early || (settings->acts && queue && queue + need > settings->limit)) {
        if (early) counts->early++;
        else counts->full++;
        return DROP;
    }
    __sync_fetch_and_add(&port->until, need);
    return NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
