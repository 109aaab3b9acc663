// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sets the TCP of a host, whatever program a connection belongs to, and reads it.
//
// `begins` sets connections that begin in a network namespace for which there are settings. `looks` goes over the live
// ones: it reports each, and sets those that are named. In a namespace that is recorded, `begins` also reports each
// connection that ends.
//
// In a namespace that is followed, `comes` tells when a connection has become a flow, and measures round-trip times where the
// data come; `begins` tells when a flow ends, and sets the receiver's window again with each segment that leaves: the kernel
// forgets it while it finds how large a buffer should be.
//
// In a namespace that is watched, `begins` and `looks` write down the addresses of connections, and `passes` looks those up and
// reports them. It costs what there are connections; `looks` reads all places of the kernel's table, however few are taken.

#include "kernel.h"

enum { TIMEOUT_INIT = 1, OFFER_INIT = 2, CONNECTS = 3, ACTIVE = 4, PASSIVE = 5, STATE = 10, LISTENS = 11, LEAVES = 14 }; // BPF_SOCK_OPS_*
enum { SOL_SOCKET = 1, SOL_TCP = 6 };
enum { CONGESTION = 13, WINDOW_CLAMP = 10, IW = 1001, CWND_CLAMP = 1002, RTO_MIN = 1004, MAX_PACING_RATE = 47 };
enum { NAME = 16 };
enum { ESTABLISHED = 1, FIN_WAIT_1 = 4, FIN_WAIT_2 = 5, CLOSED = 7, CLOSE_WAIT = 8, LISTENING = 10, IPV4 = 2 };
enum { TELL_STATES = 1 << 2, TELL_SEGMENTS = 1 << 6 }; // BPF_SOCK_OPS_*_CB_FLAG
enum { NO_CAP = 0x7fffffff, NO_PACE = 0xffffffff }; // as much as can be set
enum { MOST_NAMESPACES = 1024, MOST_CONNECTIONS = 65536, ROOM_OF_ENDS = 1 << 20 };
enum { ROOM_OF_NEWS = 1 << 20 };
enum { MOST_WATCHED = 2048, ROOM_OF_ROWS = 1 << 19 }; // for 2730 rows, some of them twice; the former as in kernel/tcp.rs
enum { KEEP = 0 }; // of a number to set: leave what is
enum { RECORD = 1, FOLLOW = 2, WATCH = 4 }; // what is done in a namespace
enum { FIRST_SEGMENTS = 10 };    // a connection that has carried more is a flow; as in agent/machine.rs
enum { LONGEST_RTT = 60000 };    // ms
enum { MAPPED = 0xffff0000 };    // the third part of an IPv4 address in IPv6, in the order of the network

static long (*set_option)(void *, int, int, void *, int) = (void *)49;
static long (*read_kernel)(void *, u32, const void *) = (void *)113;
static long (*seq_write)(void *, const void *, u32) = (void *)127;
static void *(*as_tcp)(void *) = (void *)137;
static u64 (*now)(void) = (void *)5;
static long (*set_flags)(void *, int) = (void *)59;
static long (*ring_output)(void *, void *, u64, u64) = (void *)130;
enum { NO_WAKEUP = 1 }; // BPF_RB_NO_WAKEUP
static u64 (*cookie_of)(void *) = (void *)46;
static u64 (*namespace_of)(void *) = (void *)122;
static void *(*of_socket)(const void *, void *, void *, u64) = (void *)107;
static void *(*find_tcp)(void *, void *, u32, u64, u64) = (void *)84;
static long (*release)(void *) = (void *)86;
static long (*for_each)(void *, void *, void *, u64) = (void *)164;
#define CURRENT_NAMESPACE ((u64)-1) // BPF_F_CURRENT_NETNS
static long (*forget_socket)(const void *, void *) = (void *)108;
enum { CREATE = 1 }; // BPF_SK_STORAGE_GET_F_CREATE

// --- What the programs are told, and tell: the same layouts as in kernel/tcp.rs.

struct settings {
    u8 control[NAME];    // name of a congestion control; empty: the host's
    u32 initial_window;  // segments
    u32 least_timeout;   // us
    u32 first_timeout;   // ticks of the kernel
    u32 window_cap;      // segments
    u32 pacing_rate;     // bytes/s
    u32 receive_window;  // bytes
    u32 first_offer;     // segments
};

// By kind of setting: how often the kernel took it, how often it did not, and what it said then.
struct outcome {
    u64 done, refused;
    s32 error;
    u32 unused;
};

enum { THE_CONTROL, THE_INITIAL_WINDOW, THE_LEAST_TIMEOUT, THE_FIRST_TIMEOUT, THE_CAP, THE_PACE, THE_WINDOW, THE_OFFER, KINDS };

// What a connection had before it was set.
struct before {
    u8 control[NAME];
    u64 pacing_rate;   // bytes/s
    u32 least_timeout; // ticks
    u32 cap;           // segments
};

struct mark {
    struct before before;
    struct settings set;
};

struct row {
    u64 cookie;
    u64 acknowledged, received; // bytes
    u32 local[4], remote[4];    // in the order of the network; an IPv4 address first, then zeros
    u16 local_port, remote_port;
    u16 family;
    u8 carries, followed;
    u32 window, cap;          // of congestion: segments
    u32 smoothed_rtt, min_rtt; // us
    u32 segment;               // bytes
    u32 data_segments, resent;
    u32 user;
    u64 pacing_rate; // bytes/s
    u32 least_timeout; // ticks
    u32 receive_window; // bytes
    u8 control[NAME];
    struct before before; // all zeros: nothing was set
    u32 receiver_rtt;     // us, as a receiver measures it
    u32 came_segment;     // bytes, of those that come
    u16 header, none;     // bytes
    u32 sender_rtt;       // us, the last measurement
    u32 last_rtt, least_rtt; // us, as `comes` measures them; 0: never
};

// Of a connection that is followed. Round-trip times are those of an acknowledgement and the first data that echo it.
struct followed {
    u64 came_at; // ns, when data came last
    u32 echo;    // the last timestamp echoed
    u32 smoothed, last, least; // us; the first eight times as much (RFC 6298)
    u8 told, passed, measured;
    u8 by_segments; // each that leaves is told of
    u32 unused;
};

// A connection that has ended. Times are of the monotonic clock, in ns; 0: never.
struct end {
    u64 cookie;
    u64 began;
    u64 sent_at, received_at; // when the last byte of each way was acknowledged, and received
    u64 sent, received;       // bytes
    u32 remote[4];
    u16 family;
    u8 opened, established;
    u32 unused;
};

// Of a connection in a namespace that is recorded.
struct times {
    u64 began, sent_at, received_at;
    u8 opened, established, unused[6];
};

// As a segment that comes has them: `struct bpf_sock_tuple`.
struct addresses {
    union {
        struct {
            u32 from, to;
            u16 from_port, to_port;
        } v4;
        struct {
            u32 from[4], to[4];
            u16 from_port, to_port;
        } v6;
    };
    u32 is_v6;
};

MAP(SETTINGS, HASH, u64, struct settings, MOST_NAMESPACES);
MAP(LIVE, HASH, u64, struct settings, MOST_CONNECTIONS);
MAP(OUTCOMES, ARRAY, u32, struct outcome, KINDS);
// A tick in us while connections get back what they had, else 0; not 0 while listening sockets are told of too; not 0 where
// connections are watched.
MAP(WANTS, ARRAY, u32, u32, 3);
OF_SOCKETS(MARKS, struct mark, CLONE);
// What is done in a namespace: of RECORD, FOLLOW and WATCH.
MAP(RECORDED, HASH, u64, u32, MOST_NAMESPACES);
OF_SOCKETS(TIMES, struct times, 0);
struct {
    int (*type)[RINGBUF];
    int (*max_entries)[ROOM_OF_ENDS];
} ENDS SEC(".maps");
MAP(MISSED, ARRAY, u32, u64, 2); // ends, and rows, for which there was no room
OF_SOCKETS(FOLLOWED, struct followed, 0);
// Windows of receivers that are followed, by cookie, bytes.
MAP(WINDOWS, LRU_HASH, u64, u32, MOST_CONNECTIONS);
// Connections that have become flows; those that do not carry data are none any more.
struct {
    int (*type)[RINGBUF];
    int (*max_entries)[ROOM_OF_NEWS];
} NEWS SEC(".maps");

// Addresses of connections, by cookie.
MAP(WATCHED, HASH, u64, struct addresses, MOST_WATCHED);
struct {
    int (*type)[RINGBUF];
    int (*max_entries)[ROOM_OF_ROWS];
} ROWS SEC(".maps");

INLINE void note(u32 kind, long result) {
    struct outcome *outcome = map_lookup(&OUTCOMES, &kind);
    if (!outcome) return;
    if (result) {
        __sync_fetch_and_add(&outcome->refused, 1);
        outcome->error = result;
    } else {
        __sync_fetch_and_add(&outcome->done, 1);
    }
}

enum { THE_ENDS, THE_ROWS };

INLINE void miss(u32 kind) {
    u64 *missed = map_lookup(&MISSED, &kind);
    if (missed) __sync_fetch_and_add(missed, 1);
}

INLINE void set_number(void *socket, u32 kind, int level, int option, u32 value) {
    if (value == KEEP) return;
    note(kind, set_option(socket, level, option, &value, sizeof(value)));
}

INLINE void set_control(void *socket, const struct settings *settings) {
    u8 name[NAME];
    if (!settings->control[0]) return;
    __builtin_memcpy(name, settings->control, NAME);
    note(THE_CONTROL, set_option(socket, SOL_TCP, CONGESTION, name, NAME));
}

// A clamp of the receiver's window is for a connection that is there: before the SYN it would choose the window's scale, and
// bound the window to 64 KiB for ever. The kernel forgets it with the first long segment, which tells it how much memory
// segments take; the window grows from what was offered then, until it is set again.
INLINE void set_window(void *socket, const struct settings *settings) {
    set_number(socket, THE_WINDOW, SOL_TCP, WINDOW_CLAMP, settings->receive_window);
}

// What can be set at any time.
INLINE void set_all(void *socket, const struct settings *settings) {
    set_control(socket, settings);
    set_number(socket, THE_LEAST_TIMEOUT, SOL_TCP, RTO_MIN, settings->least_timeout);
    set_number(socket, THE_CAP, SOL_TCP, CWND_CLAMP, settings->window_cap);
    set_number(socket, THE_PACE, SOL_SOCKET, MAX_PACING_RATE, settings->pacing_rate);
}

// --- What the kernel knows of a connection.

struct seq_file;

struct in6_addr {
    union {
        u32 u6_addr32[4];
    } in6_u;
} KERNEL;

struct sock_common {
    u16 skc_family;
    u8 skc_state;
    int skc_bound_dev_if;
    struct {
        s64 counter;
    } skc_cookie;
    u16 skc_dport, skc_num;
    u32 skc_daddr, skc_rcv_saddr;
    struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} KERNEL;

struct bpf_iter_meta {
    struct seq_file *seq;
} KERNEL;

struct bpf_iter__tcp {
    struct bpf_iter_meta *meta;
    struct sock_common *sk_common;
    u32 uid;
};

struct minmax_sample {
    u32 v;
} KERNEL;

struct minmax {
    struct minmax_sample s[3];
} KERNEL;

struct sock {
    struct sock_common __sk_common;
    unsigned long sk_max_pacing_rate;
    struct {
        u32 val;
    } sk_uid;
} KERNEL;


struct inet_sock {
    struct sock sk;
} KERNEL;

struct tcp_congestion_ops {
    u8 name[NAME];
} KERNEL;

struct inet_connection_sock {
    struct inet_sock icsk_inet;
    u32 icsk_rto_min;
    const struct tcp_congestion_ops *icsk_ca_ops;
    struct {
        u16 rcv_mss;
    } icsk_ack;
} KERNEL;

struct tcp_rack {
    u32 rtt_us;
} KERNEL;

struct tcp_sock {
    struct inet_connection_sock inet_conn;
    u16 tcp_header_len;
    u32 window_clamp;
    u64 bytes_acked, bytes_received, bytes_sent, bytes_retrans;
    u32 snd_cwnd, snd_cwnd_clamp;
    u32 srtt_us, tsoffset;
    struct tcp_rack rack;
    struct minmax rtt_min;
    u32 mss_cache;
    u32 data_segs_out, total_retrans;
    struct {
        u32 rtt_us; // eight times as much
    } rcv_rtt_est;
} KERNEL;

INLINE void read_before(const struct tcp_sock *tcp, struct before *before) {
    read_kernel(before->control, NAME - 1, tcp->inet_conn.icsk_ca_ops->name);
    before->pacing_rate = tcp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
    before->least_timeout = tcp->inet_conn.icsk_rto_min;
    before->cap = tcp->snd_cwnd_clamp;
}

INLINE int carries(u8 state) { return state == ESTABLISHED || state == CLOSE_WAIT || state == FIN_WAIT_1; }

// A segment finds a connection that is bound to an interface only there: it is counted as missed, so that the table is read.
INLINE void write_down(const struct tcp_sock *tcp, u64 cookie) {
    const struct sock_common *common = &tcp->inet_conn.icsk_inet.sk.__sk_common;
    struct addresses addresses = {};
    u16 remote_port = common->skc_dport, local_port = AS_NETWORK(common->skc_num);
    const u32 *remote = common->skc_v6_daddr.in6_u.u6_addr32, *local = common->skc_v6_rcv_saddr.in6_u.u6_addr32;
    if (common->skc_bound_dev_if) {
        miss(THE_ROWS);
        return;
    }
    // A socket for both families may have an IPv4 connection.
    if (common->skc_family == IPV4 || (!remote[0] && !remote[1] && remote[2] == MAPPED)) {
        addresses.v4.from = common->skc_daddr;
        addresses.v4.to = common->skc_rcv_saddr;
        addresses.v4.from_port = remote_port;
        addresses.v4.to_port = local_port;
    } else {
        for (int i = 0; i < 4; i++) {
            addresses.v6.from[i] = remote[i];
            addresses.v6.to[i] = local[i];
        }
        addresses.v6.from_port = remote_port;
        addresses.v6.to_port = local_port;
        addresses.is_v6 = 1;
    }
    if (map_update(&WATCHED, &cookie, &addresses, 0)) miss(THE_ROWS);
}

// All but what was set before.
INLINE void fill(struct row *row, const struct tcp_sock *tcp, const struct followed *followed) {
    const struct sock_common *common = &tcp->inet_conn.icsk_inet.sk.__sk_common;
    row->user = tcp->inet_conn.icsk_inet.sk.sk_uid.val;
    row->acknowledged = tcp->bytes_acked;
    row->received = tcp->bytes_received;
    row->family = common->skc_family;
    if (row->family == IPV4) {
        row->local[0] = common->skc_rcv_saddr;
        row->remote[0] = common->skc_daddr;
    } else {
        for (int i = 0; i < 4; i++) {
            row->local[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
            row->remote[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
        }
    }
    row->local_port = common->skc_num;
    row->remote_port = AS_NETWORK(common->skc_dport);
    row->carries = carries(common->skc_state);
    row->window = tcp->snd_cwnd;
    row->cap = tcp->snd_cwnd_clamp;
    row->smoothed_rtt = tcp->srtt_us >> 3;
    row->min_rtt = tcp->rtt_min.s[0].v;
    row->sender_rtt = tcp->rack.rtt_us;
    row->segment = tcp->mss_cache;
    row->data_segments = tcp->data_segs_out;
    row->resent = tcp->total_retrans;
    row->receive_window = tcp->window_clamp;
    row->receiver_rtt = tcp->rcv_rtt_est.rtt_us >> 3;
    if (followed) row->followed = followed->by_segments;
    if (followed && followed->smoothed) {
        row->receiver_rtt = followed->smoothed / 8;
        row->last_rtt = followed->last;
        row->least_rtt = followed->least;
    }
    row->came_segment = tcp->inet_conn.icsk_ack.rcv_mss;
    row->header = tcp->tcp_header_len;
    struct before now = {};
    read_before(tcp, &now);
    row->pacing_rate = now.pacing_rate;
    row->least_timeout = now.least_timeout;
    __builtin_memcpy(row->control, now.control, NAME);
}

// --- Connections that begin.

struct bpf_sock_ops { // as linux/bpf.h has it, up to the last member used
    u32 op;
    union {
        u32 reply;
        u32 args[4];
    };
    u32 others[16];
    u32 flags;
    u32 more[24];
    void *sk;
};

// Writes down what a connection has, unless its listening socket had other settings before, and sets it.
INLINE void mark_and_set(struct bpf_sock_ops *context, const struct settings *settings) {
    struct tcp_sock *tcp = context->sk ? as_tcp(context->sk) : 0;
    if (tcp) {
        struct mark *mark = of_socket(&MARKS, tcp, 0, 0);
        if (mark) {
            mark->set = *settings;
        } else {
            struct mark first = {.set = *settings};
            read_before(tcp, &first.before);
            of_socket(&MARKS, tcp, &first, CREATE);
        }
    }
    set_all(context, settings);
}

INLINE void report(struct bpf_sock_ops *context, struct tcp_sock *tcp, const struct times *times) {
    struct sock_common *common = &tcp->inet_conn.icsk_inet.sk.__sk_common;
    struct end end = {};
    end.cookie = cookie_of(context);
    end.began = times->began;
    end.sent_at = times->sent_at;
    end.received_at = times->received_at;
    end.opened = times->opened;
    end.established = times->established;
    // What is acknowledged counts a SYN and a FIN too, what is sent what was never acknowledged.
    u64 acknowledged = tcp->bytes_acked, sent = tcp->bytes_sent - tcp->bytes_retrans;
    end.sent = acknowledged < sent ? acknowledged : sent;
    end.received = tcp->bytes_received;
    end.family = common->skc_family;
    if (end.family == IPV4) {
        end.remote[0] = common->skc_daddr;
    } else {
        for (int i = 0; i < 4; i++) end.remote[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
    }
    if (ring_output(&ENDS, &end, sizeof(end), NO_WAKEUP)) miss(THE_ENDS);
}

// Notes when a connection begins and when each way of it ends, and reports it when both have.
INLINE void record(struct bpf_sock_ops *context, u64 namespace) {
    u32 op = context->op;
    if (op != CONNECTS && op != PASSIVE && op != STATE) return;
    struct tcp_sock *tcp = context->sk ? as_tcp(context->sk) : 0;
    if (!tcp) return;
    if (op != STATE) {
        u32 *what = map_lookup(&RECORDED, &namespace);
        if (!what || !(*what & RECORD)) return;
        struct times first = {.began = now(), .opened = op == CONNECTS, .established = op == PASSIVE};
        if (!of_socket(&TIMES, tcp, &first, CREATE)) return;
        set_flags(context, context->flags | TELL_STATES);
        return;
    }
    struct times *times = of_socket(&TIMES, tcp, 0, 0);
    if (!times) return;
    u32 state = context->args[1];
    if (state == ESTABLISHED) times->established = 1;
    // Its FIN is acknowledged, and with it all before; the peer's has come.
    u8 all_sent = state == FIN_WAIT_2 || state == CLOSED, all_received = state == CLOSE_WAIT || state == CLOSED;
    if (all_sent && !times->sent_at) times->sent_at = now();
    if (all_received && !times->received_at) times->received_at = now();
    if (state == CLOSED) {
        report(context, tcp, times);
        forget_socket(&TIMES, tcp);
    }
}

// What comes before a connection is a flow takes no more room than the first window of who sends it.
INLINE void follow(struct bpf_sock_ops *context, u64 namespace) {
    u32 op = context->op;
    if (op == OFFER_INIT || op == ACTIVE || op == PASSIVE) {
        u32 *what = map_lookup(&RECORDED, &namespace);
        if (!what || !(*what & FOLLOW)) return;
        if (op == OFFER_INIT) {
            context->reply = FIRST_SEGMENTS;
            return;
        }
    } else if (op != STATE) {
        return;
    }
    struct tcp_sock *tcp = context->sk ? as_tcp(context->sk) : 0;
    if (!tcp) return;
    struct followed *followed = of_socket(&FOLLOWED, tcp, 0, op == ACTIVE || op == PASSIVE ? CREATE : 0);
    if (!followed) return;
    if (op == ACTIVE || op == PASSIVE) {
        followed->by_segments = 1;
        set_flags(context, context->flags | TELL_STATES | TELL_SEGMENTS);
        return;
    }
    if (followed->told && !carries(context->args[1])) {
        followed->told = 0;
        struct row row = {.cookie = cookie_of(context)};
        ring_output(&NEWS, &row, sizeof(row), 0);
    }
}

// A socket that begins to listen is found by no segment's addresses; it may have been set. One that connects is written down
// again when it is established: a reading of the table may have used up in between that it was missed.
INLINE void watch(struct bpf_sock_ops *context, u64 namespace) {
    u32 op = context->op;
    if (op == STATE && context->args[1] == CLOSED) {
        u64 cookie = cookie_of(context);
        map_delete(&WATCHED, &cookie);
        return;
    }
    if (op != CONNECTS && op != ACTIVE && op != PASSIVE && op != LISTENS) return;
    u32 *what = map_lookup(&RECORDED, &namespace);
    if (!what || !(*what & WATCH)) return;
    if (op == LISTENS) {
        miss(THE_ROWS);
        return;
    }
    struct tcp_sock *tcp = context->sk ? as_tcp(context->sk) : 0;
    if (!tcp) return;
    set_flags(context, context->flags | TELL_STATES);
    write_down(tcp, cookie_of(context));
}

INLINE void keep_window(struct bpf_sock_ops *context) {
    struct tcp_sock *tcp = context->sk ? as_tcp(context->sk) : 0;
    struct followed *followed = tcp ? of_socket(&FOLLOWED, tcp, 0, 0) : 0;
    if (!followed || !followed->told) return;
    u64 cookie = cookie_of(context);
    u32 *window = map_lookup(&WINDOWS, &cookie);
    if (window && tcp->window_clamp != *window) set_number(context, THE_WINDOW, SOL_TCP, WINDOW_CLAMP, *window);
}

SEC("sockops")
int begins(struct bpf_sock_ops *context) {
    if (context->op == LEAVES) {
        keep_window(context);
        return 1;
    }
    u64 namespace = namespace_of(context);
    record(context, namespace);
    follow(context, namespace);
    watch(context, namespace);
    struct settings *settings = map_lookup(&SETTINGS, &namespace);
    if (!settings) return 1;
    switch (context->op) {
    case TIMEOUT_INIT:
        if (settings->first_timeout != KEEP) {
            context->reply = settings->first_timeout;
            note(THE_FIRST_TIMEOUT, 0);
        }
        break;
    case OFFER_INIT:
        if (settings->first_offer != KEEP) {
            context->reply = settings->first_offer;
            note(THE_OFFER, 0);
        }
        break;
    case CONNECTS:
    case LISTENS: // for the connections that it accepts
        // Before the SYN, which says whether marks are understood, and before the first round-trip time: the variance that
        // follows from it begins at the least timeout.
        mark_and_set(context, settings);
        break;
    case PASSIVE:
        // Its listener may be older than the settings.
        mark_and_set(context, settings);
        __attribute__((fallthrough));
    case ACTIVE:
        set_window(context, settings);
        set_number(context, THE_INITIAL_WINDOW, SOL_TCP, IW, settings->initial_window);
        break;
    }
    return 1;
}

// --- Segments that come.

// Marks are of a clock of ms. Data that come after a pause echo what was sent before it: they are passed over, once.
INLINE void measure(struct __sk_buff *skb, const struct tcp_sock *tcp, struct followed *followed) {
    u8 first, header[32];
    u32 at = 40;
    if (skb_load(skb, 0, &first, 1, FROM_NETWORK_HEADER)) return;
    if (first >> 4 == 4) at = (first & 15) * 4;
    if (skb_load(skb, at, header, sizeof(header), FROM_NETWORK_HEADER)) return;
    u32 own = (header[12] >> 4) * 4;
    if (skb->len <= at + own) return;
    u8 *mark = header + 20; // no operation, no operation, timestamps (RFC 7323, appendix A)
    if (mark[0] != 1 || mark[1] != 1 || mark[2] != 8 || mark[3] != 10) return;
    u64 at_ns = now();
    u64 pause = at_ns - followed->came_at;
    int has_come = followed->came_at != 0;
    followed->came_at = at_ns;
    u32 echo = (u32)header[28] << 24 | (u32)header[29] << 16 | (u32)header[30] << 8 | header[31];
    if (echo == followed->echo) return;
    followed->echo = echo;
    u32 sample = (u32)(at_ns / 1000000) + tcp->tsoffset - echo;
    if (sample > LONGEST_RTT) return;
    sample *= 1000;
    // Twice the smoothed time, in ns.
    if (followed->measured && has_come && pause > (u64)followed->smoothed * 250 && !followed->passed) {
        followed->passed = 1;
        return;
    }
    followed->passed = 0;
    if (!followed->measured || sample < followed->least) followed->least = sample;
    followed->last = sample;
    followed->smoothed = followed->measured ? followed->smoothed - followed->smoothed / 8 + sample : sample * 8;
    followed->measured = 1;
}

SEC("cgroup_skb/ingress")
int comes(struct __sk_buff *skb) {
    void *socket = skb->sk; // each reading is another value to who checks
    if (!socket) return 1;
    struct followed *followed = of_socket(&FOLLOWED, socket, 0, 0);
    if (!followed) return 1;
    struct tcp_sock *tcp = as_tcp(socket);
    if (!tcp) return 1;
    measure(skb, tcp, followed);
    u32 came = FIRST_SEGMENTS * tcp->inet_conn.icsk_ack.rcv_mss;
    u8 state = tcp->inet_conn.icsk_inet.sk.__sk_common.skc_state;
    if (!followed->told && carries(state) && (tcp->data_segs_out > FIRST_SEGMENTS || tcp->bytes_received > came)) {
        followed->told = 1;
        struct row row = {.cookie = cookie_of(skb)};
        fill(&row, tcp, followed);
        ring_output(&NEWS, &row, sizeof(row), 0);
    }
    return 1;
}

// --- Live connections.

INLINE int is_same(const u8 *one, const u8 *other) {
    for (int i = 0; i < NAME; i++) {
        if (one[i] != other[i]) return 0;
    }
    return 1;
}

// What somebody else has set since stays.
INLINE void give_back(struct tcp_sock *tcp, const struct mark *mark, u32 tick) {
    struct before now = {}, before = mark->before;
    read_before(tcp, &now);
    if (mark->set.control[0] && is_same(now.control, mark->set.control) && !is_same(now.control, before.control)) {
        note(THE_CONTROL, set_option(tcp, SOL_TCP, CONGESTION, before.control, NAME));
    }
    if (mark->set.least_timeout != KEEP && now.least_timeout * tick == mark->set.least_timeout) {
        set_number(tcp, THE_LEAST_TIMEOUT, SOL_TCP, RTO_MIN, before.least_timeout * tick);
    }
    if (mark->set.window_cap != KEEP && now.cap == mark->set.window_cap) {
        set_number(tcp, THE_CAP, SOL_TCP, CWND_CLAMP, before.cap > NO_CAP ? NO_CAP : before.cap);
    }
    if (mark->set.pacing_rate != KEEP && now.pacing_rate == mark->set.pacing_rate) {
        u32 rate = before.pacing_rate > NO_PACE ? NO_PACE : before.pacing_rate;
        set_number(tcp, THE_PACE, SOL_SOCKET, MAX_PACING_RATE, rate);
    }
}

SEC("iter/tcp")
int looks(struct bpf_iter__tcp *context) {
    struct sock_common *common = context->sk_common;
    if (!common) return 0;
    u8 state = common->skc_state;
    struct tcp_sock *tcp = as_tcp(common);
    if (!tcp) return 0;
    struct row row = {};
    row.cookie = cookie_of(tcp);
    struct settings *settings = map_lookup(&LIVE, &row.cookie);
    struct followed *followed = of_socket(&FOLLOWED, tcp, 0, 0);
    if (settings) {
        set_all(tcp, settings);
        // One that is older than the agent is followed since it is bounded.
        if (settings->receive_window != KEEP && !followed) followed = of_socket(&FOLLOWED, tcp, 0, CREATE);
        if (state != LISTENING) set_window(tcp, settings);
    }
    struct mark *mark = of_socket(&MARKS, tcp, 0, 0);
    u32 zero = 0, one = 1, two = 2;
    u32 *tick = map_lookup(&WANTS, &zero), *all = map_lookup(&WANTS, &one), *watched = map_lookup(&WANTS, &two);
    if (mark && tick && *tick) {
        give_back(tcp, mark, *tick);
        forget_socket(&MARKS, tcp);
        mark = 0;
    }
    if (mark) row.before = mark->before;
    if (watched && *watched && state != LISTENING) write_down(tcp, row.cookie);
    if (!carries(state) && !mark && !settings && !(all && *all && state == LISTENING)) return 0;
    fill(&row, tcp, followed);
    seq_write(context->meta->seq, &row, sizeof(row));
    return 0;
}

INLINE void *find(struct __sk_buff *skb, struct addresses *addresses) {
    if (addresses->is_v6) return find_tcp(skb, &addresses->v6, sizeof(addresses->v6), CURRENT_NAMESPACE, 0);
    return find_tcp(skb, &addresses->v4, sizeof(addresses->v4), CURRENT_NAMESPACE, 0);
}

INLINE int show_socket(void *socket, u64 cookie) {
    struct tcp_sock *tcp = as_tcp(socket);
    if (!tcp || (u64)tcp->inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter != cookie) return 0;
    struct mark *mark = of_socket(&MARKS, tcp, 0, 0);
    struct row row = {.cookie = cookie};
    if (mark) row.before = mark->before;
    fill(&row, tcp, of_socket(&FOLLOWED, tcp, 0, 0));
    if (ring_output(&ROWS, &row, sizeof(row), NO_WAKEUP)) miss(THE_ROWS);
    return 1;
}

// `begins` removes a connection that closes. One that is not found is older than `begins`, or is bound to an interface since, or
// has got the place of another while this was read.
static long show(void *map, u64 *key, struct addresses *addresses, struct __sk_buff **skb) {
    u64 cookie = *key;
    void *socket = find(*skb, addresses);
    int is_there = 0;
    if (socket) {
        is_there = show_socket(socket, cookie);
        release(socket);
    }
    if (!is_there) {
        map_delete(map, &cookie);
        miss(THE_ROWS);
    }
    return 0;
}

// Runs when it is called (BPF_PROG_RUN), with an empty packet of the caller's namespace.
SEC("classifier")
int passes(struct __sk_buff *skb) {
    for_each(&WATCHED, show, &skb, 0);
    return 0;
}

// `seq_write` and `read_kernel` are for programs whose licence says GPL; this one may be used under it too.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
