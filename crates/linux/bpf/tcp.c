// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sets the TCP of a host, whatever program a connection belongs to, and reads it.
//
// `begins` sets connections that begin in a network namespace for which there are settings. `looks` goes over the live
// ones: it reports each, and sets those that are named.

#include "kernel.h"

enum { TIMEOUT_INIT = 1, CONNECTS = 3, ACTIVE = 4, PASSIVE = 5, LISTENS = 11 }; // BPF_SOCK_OPS_*
enum { SOL_SOCKET = 1, SOL_TCP = 6 };
enum { CONGESTION = 13, WINDOW_CLAMP = 10, IW = 1001, CWND_CLAMP = 1002, RTO_MIN = 1004, MAX_PACING_RATE = 47 };
enum { NAME = 16 };
enum { ESTABLISHED = 1, FIN_WAIT_1 = 4, CLOSE_WAIT = 8, IPV4 = 2 };
enum { MOST_NAMESPACES = 1024, MOST_CONNECTIONS = 65536 };
enum { KEEP = 0 }; // of a number to set: leave what is

static long (*set_option)(void *, int, int, void *, int) = (void *)49;
static long (*read_kernel)(void *, u32, const void *) = (void *)113;
static long (*seq_write)(void *, const void *, u32) = (void *)127;
static void *(*as_tcp)(void *) = (void *)137;
static u64 (*cookie_of)(void *) = (void *)46;
static u64 (*namespace_of)(void *) = (void *)122;

// --- What the programs are told, and tell: the same layouts as in kernel/tcp.rs.

struct settings {
    u8 control[NAME];    // name of a congestion control; empty: the host's
    u32 initial_window;  // segments
    u32 least_timeout;   // us
    u32 first_timeout;   // ticks of the kernel
    u32 window_cap;      // segments
    u32 pacing_rate;     // bytes/s
    u32 receive_window;  // bytes
};

// By kind of setting: how often the kernel took it, how often it did not, and what it said then.
struct outcome {
    u64 done, refused;
    s32 error;
    u32 unused;
};

enum { THE_CONTROL, THE_INITIAL_WINDOW, THE_LEAST_TIMEOUT, THE_FIRST_TIMEOUT, THE_CAP, THE_PACE, THE_WINDOW, KINDS };

struct row {
    u64 cookie;
    u64 acknowledged, received; // bytes
    u32 local[4], remote[4];    // in the order of the network; an IPv4 address first, then zeros
    u16 local_port, remote_port;
    u16 family;
    u8 state, unused;
    u32 window, cap;          // of congestion: segments
    u32 smoothed_rtt, min_rtt; // us
    u32 segment;               // bytes
    u32 data_segments, resent;
    u32 user;
    u64 pacing_rate; // bytes/s
    u32 least_timeout; // ticks
    u32 receive_window; // bytes
    u8 control[NAME];
};

MAP(SETTINGS, HASH, u64, struct settings, MOST_NAMESPACES);
MAP(LIVE, HASH, u64, struct settings, MOST_CONNECTIONS);
MAP(OUTCOMES, ARRAY, u32, struct outcome, KINDS);

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

// What can be set at any time.
INLINE void set_all(void *socket, const struct settings *settings) {
    set_control(socket, settings);
    set_number(socket, THE_LEAST_TIMEOUT, SOL_TCP, RTO_MIN, settings->least_timeout);
    set_number(socket, THE_CAP, SOL_TCP, CWND_CLAMP, settings->window_cap);
    set_number(socket, THE_PACE, SOL_SOCKET, MAX_PACING_RATE, settings->pacing_rate);
    set_number(socket, THE_WINDOW, SOL_TCP, WINDOW_CLAMP, settings->receive_window);
}

// --- Connections that begin.

struct bpf_sock_ops { // as linux/bpf.h has it, up to the last member used
    u32 op;
    u32 reply;
};

SEC("sockops")
int begins(struct bpf_sock_ops *context) {
    u64 namespace = namespace_of(context);
    struct settings *settings = map_lookup(&SETTINGS, &namespace);
    if (!settings) return 1;
    switch (context->op) {
    case TIMEOUT_INIT:
        if (settings->first_timeout != KEEP) {
            context->reply = settings->first_timeout;
            note(THE_FIRST_TIMEOUT, 0);
        }
        break;
    case CONNECTS:
    case LISTENS: // for the connections that it accepts
        // Before the SYN, which says whether marks are understood, and before the first round-trip time: the variance that
        // follows from it begins at the least timeout.
        set_all(context, settings);
        break;
    case PASSIVE:
        // Its listener may be older than the settings.
        set_all(context, settings);
        __attribute__((fallthrough));
    case ACTIVE:
        set_number(context, THE_INITIAL_WINDOW, SOL_TCP, IW, settings->initial_window);
        break;
    }
    return 1;
}

// --- Live connections.

struct seq_file;

struct in6_addr {
    union {
        u32 u6_addr32[4];
    } in6_u;
} KERNEL;

struct sock_common {
    u16 skc_family;
    u8 skc_state;
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
    unsigned long sk_max_pacing_rate;
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
} KERNEL;

struct tcp_sock {
    struct inet_connection_sock inet_conn;
    u32 window_clamp;
    u64 bytes_acked, bytes_received;
    u32 snd_cwnd, snd_cwnd_clamp;
    u32 srtt_us;
    struct minmax rtt_min;
    u32 mss_cache;
    u32 data_segs_out, total_retrans;
} KERNEL;

SEC("iter/tcp")
int looks(struct bpf_iter__tcp *context) {
    struct sock_common *common = context->sk_common;
    if (!common) return 0;
    u8 state = common->skc_state;
    if (state != ESTABLISHED && state != CLOSE_WAIT && state != FIN_WAIT_1) return 0;
    struct tcp_sock *tcp = as_tcp(common);
    if (!tcp) return 0;
    struct row row = {};
    row.cookie = cookie_of(tcp);
    struct settings *settings = map_lookup(&LIVE, &row.cookie);
    if (settings) set_all(tcp, settings);
    row.acknowledged = tcp->bytes_acked;
    row.received = tcp->bytes_received;
    row.family = common->skc_family;
    if (row.family == IPV4) {
        row.local[0] = common->skc_rcv_saddr;
        row.remote[0] = common->skc_daddr;
    } else {
        for (int i = 0; i < 4; i++) {
            row.local[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
            row.remote[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
        }
    }
    row.local_port = common->skc_num;
    row.remote_port = AS_NETWORK(common->skc_dport);
    row.state = state;
    row.window = tcp->snd_cwnd;
    row.cap = tcp->snd_cwnd_clamp;
    row.smoothed_rtt = tcp->srtt_us >> 3;
    row.min_rtt = tcp->rtt_min.s[0].v;
    row.segment = tcp->mss_cache;
    row.data_segments = tcp->data_segs_out;
    row.resent = tcp->total_retrans;
    row.user = context->uid;
    row.pacing_rate = tcp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
    row.least_timeout = tcp->inet_conn.icsk_rto_min;
    row.receive_window = tcp->window_clamp;
    read_kernel(row.control, NAME - 1, tcp->inet_conn.icsk_ca_ops->name);
    seq_write(context->meta->seq, &row, sizeof(row));
    return 0;
}

// `seq_write` and `read_kernel` are for programs whose licence says GPL; this one may be used under it too.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
