// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Lowers the receive window in the acknowledgements that come in at a port of a router to what the law gives the flow, whose
// data depart by the same port.
//
// The handshake tells each flow's scale and segment size. Nothing but the window and the checksum of TCP is changed, and
// nothing at all once the daemon has been silent for half a second. What cannot be read passes as it is, and is counted.

#include "packet.h"

enum { TO_ANOTHER_HOST = 3 };                          // PACKET_OTHERHOST
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };
enum { SEQUENCE = 4, ACKNOWLEDGED = 8, OFFSET = 12, WINDOW = 14, CHECKSUM = 16, TCP_HEADER = 20 };
enum { ETHERNET = 14, VLAN = 0x8100, PROVIDER_VLAN = 0x88a8, TAG = 4 };
enum { END = 0, NOP = 1, MSS = 2, SCALE = 3, TIMESTAMPS = 8, MD5 = 19, AUTHENTICATION = 29, MULTIPATH = 30, MOST_OPTIONS = 20 };
enum { LARGEST_SCALE = 14, DEFAULT_MSS = 536, OF_TIMESTAMPS = 12, HIGHEST_WINDOW = 65535 };
enum { PERCPU_ARRAY = 6, NO_EXIST = 1 };
enum { LARGEST_STEP = 1 << 20 }; // of sequence numbers, from what was seen to what follows it
enum { DEVICE_BITS = 20 }; // of a device in a short name
enum { MOST_FLOWS = 131072, ROOM_OF_EVENTS = 1 << 20 };
enum { USUAL_IPV4 = ETHERNET + 20, USUAL_IPV6 = ETHERNET + 40 }; // where TCP begins in most packets
#define SILENCE 500000000ULL

static long (*skb_store)(struct __sk_buff *, u32, const void *, u32, u64) = (void *)9;
static long (*csum_replace)(struct __sk_buff *, u32, u64, u64, u64) = (void *)11;
static long (*ring_output)(void *, void *, u64, u64) = (void *)130;
static u64 (*coarse_time)(void) = (void *)160;
#ifdef TIMED
static u64 (*exact_time)(void) = (void *)5;
#endif

// --- What the programs are told, and tell: the same layouts as in kernel/windows.rs.

struct settings {
    u64 beat;  // ns since the machine began, when the daemon was last heard; 0: windows stay as they are
    u32 first; // segments of the window of a flow of which the law has not spoken
    u32 unused;
};

// Of a flow as its sender sees it.
struct name {
    u32 sender[4], receiver[4];
    u16 ports[2];
    u32 device;
    u16 vlan;
    u16 family;
};

struct end { // as its SYN stated it
    u16 mss;
    u8 scale;
    u8 has; // HAS_*
};
union packed {
    struct end end;
    u32 bits;
};
enum { HAS_SYN = 1, HAS_SCALE = 2, HAS_TIMESTAMPS = 4, HAS_SIGNATURE = 8, OF_THE_RECEIVER = 16, HAS_ENDED = 32, HAS_MULTIPATH = 64 };

// The same where it is short. With its row it takes 128 bytes of the kernel's memory, and no more may be: among 100,000 flows a
// packet waits for each line of memory that it needs.
// Each half is written at once: it is read so, and the processor would wait for parts.
struct short_name {
    u64 ends;  // addresses of the sender and, above it, of the receiver
    u64 where; // ports, then the device, then the VLAN
};

struct flow {
    u64 last;    // ns since the machine began
    u32 window;  // bytes, of the law; 0: it has not spoken
    u32 came;    // sequence number after the data that came
    u32 acked;
    u32 replied; // sequence number after what the receiver sent
    // What the sender and the receiver sent last, when it is far from what was seen before.
    u32 stray, reply_stray;
    // Of the sender and the receiver. The sender's tells too that the flow has ended.
    union packed sender, receiver;
    u32 number;
    u32 begin;   // sequence number of the first byte of data
    // Of a SYN that came while the flow lives, until the other end answers it.
    u32 offered_begin;
    struct end offered;
};

// What the daemon says, in place of a packet.
struct decision {
    u8 ethernet[16];
    struct name name; // or a short one, which begins here
    u32 number, window, is_short;
};

enum { BEGINS = 0, ESTABLISHED = 1, FINISHED = 2, RESET = 3, REPLACED = 4 };
struct event {
    u32 kind, number;
    struct name name;
    struct flow flow;
};

enum { ACKS = 0, LOWERED = 1, UNREAD = 2, UNKNOWN = 3, NO_ROOM = 4, LOST = 5, SILENT = 6, COUNTS = 7 };

MAP(SETTINGS, ARRAY, u32, struct settings, 1);
MAP(COUNT, PERCPU_ARRAY, u32, u64, COUNTS);
MAP(NUMBER, ARRAY, u32, u32, 1);
#define TABLE(name, k)                                                                                                 \
    struct {                                                                                                           \
        int (*type)[HASH];                                                                                             \
        k *key;                                                                                                        \
        struct flow *value;                                                                                            \
        int (*max_entries)[MOST_FLOWS];                                                                                \
        int (*map_flags)[NO_PREALLOC];                                                                                 \
    } name SEC(".maps")
// Flows of IPv4, and those whose names are long.
TABLE(SHORT_FLOWS, struct short_name);
TABLE(FLOWS, struct name);
struct {
    int (*type)[RINGBUF];
    int (*max_entries)[ROOM_OF_EVENTS];
} EVENTS SEC(".maps");

#ifdef TIMED
// How long round trips of a flow take, by its number: from here to the receiver and back, and from here to the sender and back.
enum { FAR = 0, NEAR = 1, HALVES = 2 };
struct half { // microseconds; 0: not measured
    u32 last, least, smoothed;
};

struct times {
    // What is waited for and, below it, since when in microseconds; 0: nothing. Each is written at once: two processors may have
    // the two directions.
    u64 data;    // an acknowledgement of the sender's data up to here
    u64 reply;   // one of what the receiver sent up to here
    u64 echo;    // the receiver's timestamp, returned by the sender
    u32 clock;   // the receiver's timestamp, seen last
    u32 has;     // SYNs that were seen
    struct half halves[HALVES];
};
struct {
    int (*type)[HASH];
    u32 *key;
    struct times *value;
    int (*max_entries)[2 * MOST_FLOWS];
    int (*map_flags)[NO_PREALLOC];
} TIMES SEC(".maps");
#endif

INLINE void count(u32 what) {
    u64 *count = map_lookup(&COUNT, &what);
    if (count) ++*count;
}

INLINE void tell(u32 kind, const struct name *name, const struct flow *flow) {
    struct event event = { .kind = kind, .number = flow->number };
    __builtin_memcpy(&event.name, name, sizeof(*name));
    __builtin_memcpy(&event.flow, flow, sizeof(*flow));
    if (ring_output(&EVENTS, &event, sizeof(event), 0)) count(LOST);
}

static const union packed ENDED = { .end = { .has = HAS_ENDED } };

INLINE int has_ended(const struct flow *flow) {
    return flow->sender.end.has & HAS_ENDED;
}

INLINE int is_established(const struct flow *flow) {
    return flow->sender.end.has & flow->receiver.end.has & HAS_SYN;
}

// Whether it had not ended before.
INLINE int ends(struct flow *flow) {
    return !(__sync_fetch_and_or(&flow->sender.bits, ENDED.bits) & ENDED.bits);
}

struct segment {
    struct short_name short_name;
    struct name name; // unless the short one says it, and nobody has asked
    u32 is_short;
    u32 at;     // of TCP, from the network header
    u32 sequence, acknowledged, payload;
    u32 header; // of TCP
    u16 window; // in the order of the network
    u8 flags;
};

INLINE struct flow *find(const struct segment *segment) {
    return segment->is_short ? map_lookup(&SHORT_FLOWS, &segment->short_name) : map_lookup(&FLOWS, &segment->name);
}

INLINE long add(const struct segment *segment, const struct flow *flow) {
    if (segment->is_short) return map_update(&SHORT_FLOWS, &segment->short_name, flow, NO_EXIST);
    return map_update(&FLOWS, &segment->name, flow, NO_EXIST);
}

INLINE void take_out(const struct segment *segment) {
    if (segment->is_short) map_delete(&SHORT_FLOWS, &segment->short_name);
    else map_delete(&FLOWS, &segment->name);
}

// Nobody asks for its times any more.
INLINE void forget_times(const struct flow *flow) {
#ifdef TIMED
    u32 number = flow->number;
    map_delete(&TIMES, &number);
#else
    (void)flow;
#endif
}

// The whole name, for those who are told.
INLINE const struct name *whole(struct segment *segment) {
    struct name *name = &segment->name;
    if (segment->is_short) {
        struct short_name *from = &segment->short_name;
        __builtin_memset(name, 0, sizeof(*name));
        name->sender[0] = from->ends;
        name->receiver[0] = from->ends >> 32;
        name->ports[0] = from->where;
        name->ports[1] = from->where >> 16;
        name->device = from->where >> 32 & ((1 << DEVICE_BITS) - 1);
        name->vlan = from->where >> (32 + DEVICE_BITS);
        name->family = IPV4;
    }
    return name;
}

// As the network orders them, at any place of a packet.
#define SHORT(at) (*(u16 *)(at))
#define WORD(at) (*(const u32 *)(at))
#define BIG(at) __builtin_bswap32(WORD(at))
#define BIG_SHORT(at) __builtin_bswap16(SHORT(at))

// Where the packet begins and ends now. The verifier knows what is loaded as a whole, and no copy of half of a register.
#define PLACE(member) ((u8 *)(long)*(volatile u32 *)&skb->member)

INLINE void copy_address(u32 *to, const u8 *from) {
    for (int i = 0; i < 4; i++) to[i] = WORD(from + 4 * i);
}

// 1: its header, of a length in `at`, is before TCP; 0: something else follows; -1: it cannot be read.
INLINE int take_ipv4(const u8 *header, u32 arrives, struct segment *segment, u32 *at, u32 *bytes) {
    if (header[9] != TCP) return 0;
    u32 length = (header[0] & 15) * 4;
    if (header[0] >> 4 != 4 || length < 20 || SHORT(header + 6) & AS_NETWORK(0x3fff)) return -1;
    u32 all = BIG_SHORT(header + 2);
    *bytes = all >= length ? all - length : 0;
    u64 source = WORD(header + 12), destination = WORD(header + 16);
    segment->short_name.ends = arrives ? source << 32 | destination : destination << 32 | source;
    segment->is_short = 1;
    *at += length;
    return 1;
}

// Returns what follows the header.
INLINE u8 take_ipv6(const u8 *header, u32 arrives, struct segment *segment, u32 *at, u32 *bytes) {
    struct name *name = &segment->name;
    *bytes = BIG_SHORT(header + 4);
    copy_address(arrives ? name->receiver : name->sender, header + 8);
    copy_address(arrives ? name->sender : name->receiver, header + 24);
    name->family = IPV6;
    segment->is_short = 0;
    *at += 40;
    return header[6];
}

INLINE int take_tcp(struct __sk_buff *skb, const u8 *tcp, u32 arrives, u32 vlan, u32 at, u32 bytes, struct segment *segment) {
    segment->header = (tcp[OFFSET] >> 4) * 4;
    if (segment->header < TCP_HEADER) return -1;
    segment->at = at;
    // What is longer than 64 KiB tells no length. The program sees it with its header of Ethernet.
    if (skb->gso_segs > 1) bytes = skb->len > ETHERNET + at ? skb->len - ETHERNET - at : 0;
    segment->payload = bytes > segment->header ? bytes - segment->header : 0;
    segment->sequence = BIG(tcp + SEQUENCE);
    segment->acknowledged = BIG(tcp + ACKNOWLEDGED);
    segment->flags = tcp[13];
    segment->window = SHORT(tcp + WINDOW);
    u32 ports = WORD(tcp), device = skb->ifindex;
    if (arrives) ports = ports << 16 | ports >> 16;
    u64 last = (u64)vlan << DEVICE_BITS | device;
    segment->short_name.where = last << 32 | ports;
    struct name *name = &segment->name;
    if (segment->is_short && device >> DEVICE_BITS) {
        // A number that is too large for a short name.
        whole(segment);
        segment->is_short = 0;
    }
    if (!segment->is_short) {
        name->ports[0] = ports;
        name->ports[1] = ports >> 16;
        name->device = device;
        name->vlan = vlan;
    }
    return 1;
}

// 1: a segment of TCP; 0: none; -1: it cannot be read. Headers of the usual lengths are read in place. Elsewhere the program would
// need CAP_PERFMON for that.
INLINE int read(struct __sk_buff *skb, u32 arrives, struct segment *segment) {
    u32 header[10], tcp[TCP_HEADER / 4];
    u8 *begin = PLACE(data), *end = PLACE(data_end), *ip = begin + ETHERNET;
    u32 at = 0, bytes, vlan = skb->vlan_present ? skb->vlan_tci & 0xfff : 0;
    u16 protocol = skb->protocol;
    if (protocol == AS_NETWORK(VLAN) || protocol == AS_NETWORK(PROVIDER_VLAN)) {
        u8 tag[TAG];
        if (skb_load(skb, 0, tag, TAG, FROM_NETWORK_HEADER) || skb->vlan_present) return -1;
        vlan = (tag[0] & 15) << 8 | tag[1];
        protocol = *(u16 *)(tag + 2);
        at = TAG;
        if (protocol == AS_NETWORK(VLAN) || protocol == AS_NETWORK(PROVIDER_VLAN)) return -1;
    } else if (protocol == AS_NETWORK(ETHERTYPE_IPV4) && begin + USUAL_IPV4 + TCP_HEADER <= end && ip[0] == 0x45) {
        int what = take_ipv4(ip, arrives, segment, &at, &bytes);
        return what > 0 ? take_tcp(skb, begin + USUAL_IPV4, arrives, vlan, 20, bytes, segment) : what;
    } else if (protocol == AS_NETWORK(ETHERTYPE_IPV6) && begin + USUAL_IPV6 + TCP_HEADER <= end && ip[0] >> 4 == 6 && ip[6] == TCP) {
        take_ipv6(ip, arrives, segment, &at, &bytes);
        return take_tcp(skb, begin + USUAL_IPV6, arrives, vlan, 40, bytes, segment);
    }
    if (protocol == AS_NETWORK(ETHERTYPE_IPV4)) {
        if (skb_load(skb, at, header, 20, FROM_NETWORK_HEADER)) return -1;
        int what = take_ipv4((u8 *)header, arrives, segment, &at, &bytes);
        if (what <= 0) return what;
    } else if (protocol == AS_NETWORK(ETHERTYPE_IPV6)) {
        if (skb_load(skb, at, header, 40, FROM_NETWORK_HEADER) || *(u8 *)header >> 4 != 6) return -1;
        u8 next = take_ipv6((u8 *)header, arrives, segment, &at, &bytes);
        for (int i = 0; i < MOST_EXTENSIONS; i++) { // hop-by-hop, routing, destination options
            if (next != 0 && next != 43 && next != 60) break;
            u8 extension[2];
            if (skb_load(skb, at, extension, 2, FROM_NETWORK_HEADER)) return -1;
            next = extension[0];
            u32 length = (extension[1] + 1) * 8;
            bytes = bytes >= length ? bytes - length : 0;
            at += length;
        }
        // A fragment, or more headers than are read.
        if (next == 44 || next == 0 || next == 43 || next == 60) return -1;
        if (next != TCP) return 0;
    } else {
        return 0;
    }
    if (skb_load(skb, at, tcp, TCP_HEADER, FROM_NETWORK_HEADER)) return -1;
    return take_tcp(skb, (u8 *)tcp, arrives, vlan, at, bytes, segment);
}

// Of the SYN whose options are in these bytes of the packet. A function that the kernel looks through once, by itself: within
// each place that calls it, it would be more than the kernel looks through.
__attribute__((noinline)) u32 options(struct __sk_buff *skb, u32 at, u32 over) {
    union packed end = { .end = { .mss = DEFAULT_MSS, .has = HAS_SYN } };
    for (int i = 0; i < MOST_OPTIONS; i++) {
        u8 option[2], value[2] = {};
        if (at + 1 > over || skb_load(skb, at, option, 1, FROM_NETWORK_HEADER) || option[0] == END) break;
        if (option[0] == NOP) {
            at++;
            continue;
        }
        if (at + 2 > over || skb_load(skb, at, option, 2, FROM_NETWORK_HEADER) || option[1] < 2) break;
        if (at + option[1] > over) break;
        if (option[0] == MSS && option[1] == 4 && !skb_load(skb, at + 2, value, 2, FROM_NETWORK_HEADER)) {
            end.end.mss = value[0] << 8 | value[1];
        } else if (option[0] == SCALE && option[1] == 3 && !skb_load(skb, at + 2, value, 1, FROM_NETWORK_HEADER)) {
            end.end.scale = value[0] > LARGEST_SCALE ? LARGEST_SCALE : value[0];
            end.end.has |= HAS_SCALE;
        } else if (option[0] == TIMESTAMPS) {
            end.end.has |= HAS_TIMESTAMPS;
        } else if (option[0] == MD5 || option[0] == AUTHENTICATION) {
            end.end.has |= HAS_SIGNATURE;
        } else if (option[0] == MULTIPATH) {
            end.end.has |= HAS_MULTIPATH;
        }
        at += option[1];
    }
    return end.bits;
}

INLINE u32 segment_size(const struct flow *flow) {
    u32 mss = flow->sender.end.mss, other = flow->receiver.end.mss;
    if (!mss || (other && other < mss)) mss = other;
    u8 both = flow->sender.end.has & flow->receiver.end.has;
    if (both & HAS_TIMESTAMPS && mss > OF_TIMESTAMPS) mss -= OF_TIMESTAMPS;
    return mss ? mss : 1;
}

// The window in bytes is at most this, rounded up to what its field can state: 0 would stop the sender. Ports are Ethernet devices: the network header is after one of theirs.
INLINE void lower(struct __sk_buff *skb, const struct segment *segment, const struct flow *flow, u32 most) {
    u8 scale = 0;
    if (!(segment->flags & SYN) && flow->sender.end.has & flow->receiver.end.has & HAS_SCALE) scale = flow->receiver.end.scale;
    u32 steps = most >> (scale & 15);
    most = steps + ((steps << (scale & 15)) < most);
    if (most > HIGHEST_WINDOW) most = HIGHEST_WINDOW;
    u16 before = segment->window, after = AS_NETWORK((u16)most);
    if (AS_NETWORK(before) <= most) return;
    u32 at = ETHERNET + segment->at;
    // This also makes the header ours to write.
    if (csum_replace(skb, at + CHECKSUM, before, after, 2)) {
        count(UNREAD);
        return;
    }
    u8 *tcp = PLACE(data) + USUAL_IPV4;
    if (at == USUAL_IPV4 && tcp + TCP_HEADER <= PLACE(data_end)) SHORT(tcp + WINDOW) = after;
    else skb_store(skb, at + WINDOW, &after, 2, 0);
    count(LOWERED);
}

// Of a SYN: the sequence number of the sender's first byte of data; one of the receiver's does not tell it.
INLINE u32 begin_of(u32 arrives, const struct segment *segment) {
    return arrives ? segment->acknowledged : segment->sequence + 1;
}

// A SYN while a connection lives counts when the other end answers it, as it does when it knows the old one no more
// (RFC 9293 section 3.5). Who guesses addresses and ports alone ends nothing.
INLINE void offer(u32 arrives, const struct segment *segment, struct flow *flow, struct end end) {
    u32 begin = begin_of(arrives, segment);
    if (!(segment->flags & ACK)) {
        flow->offered_begin = begin;
        flow->offered = end;
        if (arrives) flow->offered.has |= OF_THE_RECEIVER;
        return;
    }
    struct end other = flow->offered;
    if (begin == flow->begin || !other.has || !!(other.has & OF_THE_RECEIVER) == arrives) return;
    if (arrives && begin != flow->offered_begin) return;
    tell(REPLACED, &segment->name, flow);
    u32 zero = 0, *number = map_lookup(&NUMBER, &zero);
    if (!number) return;
    other.has &= ~OF_THE_RECEIVER;
    forget_times(flow);
    flow->number = __sync_fetch_and_add(number, 1);
    flow->window = 0;
    flow->begin = flow->came = flow->acked = begin;
    flow->sender.end = arrives ? other : end;
    flow->receiver.end = arrives ? end : other;
    flow->replied = arrives ? segment->sequence + 1 : segment->acknowledged;
    flow->offered.has = 0;
    tell(BEGINS, &segment->name, flow);
    tell(ESTABLISHED, &segment->name, flow);
}

// A SYN of either end. Another number at its begin is another connection.
INLINE void begin(struct __sk_buff *skb, u32 arrives, const struct segment *segment, struct flow *flow) {
    union packed stated = { .bits = options(skb, segment->at + TCP_HEADER, segment->at + segment->header) };
    struct end end = stated.end;
    // What is signed covers the window (RFC 2385, RFC 5925): it passes as it is, and makes no flow.
    if (end.has & HAS_SIGNATURE) return;
    if (flow && !has_ended(flow) && is_established(flow)) {
        offer(arrives, segment, flow, end);
        return;
    }
    struct flow new = { .last = coarse_time() };
    u32 begin = begin_of(arrives, segment), zero = 0;
    int knows_begin = !arrives || segment->flags & ACK;
    int answers = segment->flags & ACK;
    // A SYN that is sent again begins where it did; one of a receiver does not tell where that is.
    if (flow && !answers && (has_ended(flow) || (!arrives && flow->sender.end.has & HAS_SYN && flow->begin != begin))) {
        tell(REPLACED, &segment->name, flow);
        forget_times(flow);
        take_out(segment);
        flow = 0;
    }
    u32 replied = arrives ? segment->sequence + 1 : segment->acknowledged;
    if (!flow) {
        u32 *number = map_lookup(&NUMBER, &zero);
        if (!number) return;
        new.number = __sync_fetch_and_add(number, 1);
        if (arrives) new.receiver = stated;
        else new.sender = stated;
        if (knows_begin) new.begin = new.came = new.acked = begin;
        new.replied = replied;
        if (add(segment, &new)) {
            count(NO_ROOM);
            return;
        }
        tell(BEGINS, &segment->name, &new);
        return;
    }
    if (arrives) flow->receiver = stated;
    else flow->sender.bits = stated.bits | (flow->sender.bits & ENDED.bits);
    flow->last = new.last;
    if (arrives || answers) flow->replied = replied;
    if (knows_begin && flow->begin != begin) flow->begin = flow->came = flow->acked = begin;
    if (is_established(flow) && answers) tell(ESTABLISHED, &segment->name, flow);
}

// A FIN or RST is of this connection by its numbers: of what may be under way, or of the SYN that it refuses.
INLINE int is_its_own(u32 arrives, const struct segment *segment, const struct flow *flow) {
    if (!arrives) return segment->sequence - flow->acked <= flow->came - flow->acked + LARGEST_STEP;
    if (flow->receiver.end.has) return segment->sequence - flow->replied + LARGEST_STEP <= 2 * LARGEST_STEP;
    return segment->flags & ACK && segment->acknowledged == flow->begin;
}

INLINE int is_far(u32 number, u32 seen) {
    return number - seen + LARGEST_STEP > 2 * LARGEST_STEP;
}

// What one end sends follows what was seen of it, or is kept in mind.
INLINE void follow(u32 after, u32 *seen, u32 *stray) {
    if (after - *seen - 1 < LARGEST_STEP) *seen = after;
    *stray = is_far(after, *seen) ? after : *seen;
}

// After a gap, as when another route had the flow for a while, what was seen begins anew where the other end acknowledges what
// this one sent last. A segment that fits in between forgets that: one that is forged moves nothing.
INLINE int begins_anew(u32 acknowledged, u32 *seen, u32 *stray) {
    if (!is_far(acknowledged, *seen)) *stray = *seen;
    else if (*stray - acknowledged <= LARGEST_STEP) {
        *seen = *stray;
        return 1;
    }
    return 0;
}

#ifdef TIMED
enum { OPTIONS_OF_TIMESTAMPS = 12, NOP_NOP_TIMESTAMPS = 0x0101080a };

INLINE u64 since(u32 what, u32 now) {
    return (u64)what << 32 | now | 1;
}

// What was waited for has come, if that is it.
INLINE void measure(u64 *waits, u32 come, u32 now, struct half *half) {
    u64 awaited = *(volatile u64 *)waits;
    if (!awaited || (s32)(come - (u32)(awaited >> 32)) < 0) return;
    *(volatile u64 *)waits = 0;
    u32 sample = (now | 1) - (u32)awaited;
    if (!sample) sample = 1;
    half->last = sample;
    if (!half->least || sample < half->least) half->least = sample;
    half->smoothed = half->smoothed ? half->smoothed - half->smoothed / 8 + sample / 8 : sample;
}

// Waits for the answer to what ends here; what is sent again tells no time (Karn).
INLINE void wait_for(u64 *waits, u32 after, u32 now, int is_again) {
    if (is_again) *(volatile u64 *)waits = 0;
    else if (!*(volatile u64 *)waits) *(volatile u64 *)waits = since(after, now);
}

// Before what was seen of the flow follows this segment. Each half is measured by what is acknowledged; the sender's by the
// receiver's timestamps too, where they are in their usual place (RFC 7323, appendix A).
INLINE void take_times(struct __sk_buff *skb, u32 arrives, const struct segment *segment, const struct flow *flow) {
    u32 number = flow->number, now = exact_time() / 1000, syn = segment->flags & SYN;
    struct times *times = map_lookup(&TIMES, &number);
    if (!times) {
        struct times none = {};
        if (!syn || map_update(&TIMES, &number, &none, NO_EXIST)) return;
        times = map_lookup(&TIMES, &number);
        if (!times) return;
    }
    u32 after = segment->sequence + segment->payload + !!syn;
    int is_again = (s32)(after - (arrives ? flow->replied : flow->came)) <= 0;
    if (syn) {
        is_again = !!(times->has & (1 + arrives));
        times->has |= 1 + arrives;
    }
    if (segment->flags & ACK) measure(arrives ? &times->data : &times->reply, segment->acknowledged, now, &times->halves[arrives ? FAR : NEAR]);
    if (syn || segment->payload) wait_for(arrives ? &times->reply : &times->data, after, now, is_again);
    u32 stamps[OPTIONS_OF_TIMESTAMPS / 4];
    if (syn || segment->header < TCP_HEADER + OPTIONS_OF_TIMESTAMPS || !(flow->sender.end.has & flow->receiver.end.has & HAS_TIMESTAMPS)) return;
    if (skb_load(skb, segment->at + TCP_HEADER, stamps, sizeof(stamps), FROM_NETWORK_HEADER)) return;
    if (__builtin_bswap32(stamps[0]) != NOP_NOP_TIMESTAMPS) return;
    if (!arrives) {
        measure(&times->echo, __builtin_bswap32(stamps[2]), now, &times->halves[NEAR]);
        return;
    }
    // The first segment with a timestamp: what returns it was sent later. A sender with nothing under way may have nothing to send.
    u32 clock = __builtin_bswap32(stamps[1]);
    int is_new = (s32)(clock - times->clock) > 0 || !times->clock, is_busy = (s32)(flow->came - segment->acknowledged) > 0;
    if (is_new) times->clock = clock;
    if (is_new && is_busy) wait_for(&times->echo, clock, now, 0);
}
#endif

INLINE int look(struct __sk_buff *skb, u32 arrives) {
    struct segment segment = {};
    if (skb->pkt_type == TO_ANOTHER_HOST) return NEXT;
    int what = read(skb, arrives, &segment);
    if (what < 0) count(UNREAD);
    if (what <= 0) return NEXT;
    struct flow *flow = find(&segment);
    if (segment.flags & SYN && !(segment.flags & RST)) {
        whole(&segment);
        begin(skb, arrives, &segment, flow);
        flow = find(&segment);
    }
    if (arrives) count(ACKS);
    if (!flow) {
        if (arrives) count(UNKNOWN);
        return NEXT;
    }
    u64 now = coarse_time();
    flow->last = now;
    if (segment.flags & RST) {
        if (!is_its_own(arrives, &segment, flow)) return NEXT;
        if (ends(flow)) tell(RESET, whole(&segment), flow);
        return NEXT;
    }
#ifdef TIMED
    take_times(skb, arrives, &segment, flow);
#endif
    if (!arrives) {
        u32 after = segment.sequence + segment.payload + !!(segment.flags & (SYN | FIN));
        follow(after, &flow->came, &flow->stray);
        if (segment.flags & ACK) begins_anew(segment.acknowledged, &flow->replied, &flow->reply_stray);
        if (segment.flags & FIN && is_its_own(0, &segment, flow) && ends(flow)) tell(FINISHED, whole(&segment), flow);
        return NEXT;
    }
    if (segment.flags & ACK && (begins_anew(segment.acknowledged, &flow->came, &flow->stray)
        || ((s32)(segment.acknowledged - flow->acked) > 0 && (s32)(segment.acknowledged - flow->came) <= LARGEST_STEP))) {
        flow->acked = segment.acknowledged;
        if ((s32)(flow->acked - flow->came) > 0) flow->came = flow->acked;
    }
    follow(segment.sequence + segment.payload, &flow->replied, &flow->reply_stray);
    u32 zero = 0;
    struct settings *settings = map_lookup(&SETTINGS, &zero);
    if (!settings) return NEXT;
    if (!settings->beat || (now > settings->beat && now - settings->beat > SILENCE)) {
        count(SILENT);
        return NEXT;
    }
    u32 window = flow->window;
    lower(skb, &segment, flow, window ? window : settings->first * segment_size(flow));
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

// A packet that nobody sent: the daemon has this program run on its decision. So the window changes where it is, and nothing
// around it that changes meanwhile.
SEC("classifier")
int decide(struct __sk_buff *skb) {
    struct decision *decision = (struct decision *)PLACE(data);
    if ((u8 *)(decision + 1) > PLACE(data_end)) return NEXT;
    struct segment segment = { .is_short = decision->is_short };
    __builtin_memcpy(&segment.name, &decision->name, sizeof(segment.name));
    __builtin_memcpy(&segment.short_name, &decision->name, sizeof(segment.short_name));
    struct flow *flow = find(&segment);
    if (!flow || flow->number != decision->number) return NEXT;
    flow->window = decision->window;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
