// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Notes at each question how much data has passed before it, in the order of packets.
//
// `departs` sees what the queue discipline gives away, and reads the counters of the classes' queues at a question: while
// it runs, no other packet leaves them. `arrives` counts what comes in, before the rules of nftables.

#include "kernel.h"
#include "packet.h"

enum { BYTE_OFFSET = 0 };          // BPF_FIELD_BYTE_OFFSET
enum { TO_ANOTHER_HOST = 3 };      // PACKET_OTHERHOST
enum { SENT = 0, RECEIVED = 1 };
enum { QUESTION = 1, PLAIN_BYTES = 4, KEYED_BYTES = 20 };
enum { MOST_RULES = 64, MOST_PORTS = 8 };
enum { QUEUE_LISTS = 16, MOST_IN_LIST = 16, MOST_AT_ONCE = 64 };
#define SECOND 1000000000ULL

static long (*read_kernel)(void *, u32, const void *) = (void *)113;
static u64 (*boot_time)(void) = (void *)125;

// --- What the program is told, and tells: the same layouts as in order/program.rs.

struct settings {
    u32 interface;
    u32 namespace; // number of the network namespace
    u32 first_class;
    u32 classes;
    u32 rules;
    u16 peer_port; // in the order of the network, as are addresses
    u16 own_port;
    u32 family;
    u32 peer[4];
};

struct rule {
    u32 source[4], source_mask[4];
    u32 destination[4], destination_mask[4];
    u64 code_points; // a bit each; none: any
    u8 family;       // 0: any
    u8 protocol;     // 0: any
    u8 ranges;       // 0: any port
    u8 unused[5];
    u16 ports[MOST_PORTS][2];
};

struct counts {
    u64 packets, bytes;
};

struct question {
    u32 direction;
    u8 payload[KEYED_BYTES];
};

struct note {
    u64 packets, bytes, at;
};

MAP(SETTINGS, ARRAY, u32, struct settings, 1);
MAP(RULES, ARRAY, u32, struct rule, MOST_RULES);
MAP(COUNTS, ARRAY, u32, struct counts, 1);
MAP(NOTES, LRU_HASH, struct question, struct note, 4096);

INLINE struct settings *told(void) {
    u32 zero = 0;
    return map_lookup(&SETTINGS, &zero);
}

INLINE struct counts *received(void) {
    u32 zero = 0;
    return map_lookup(&COUNTS, &zero);
}

// A question that comes or goes again does not move the note: a copy, or what a busy driver gave back.
INLINE void take_note(const struct question *question, const struct counts *counts) {
    struct note note = { counts->packets, counts->bytes, boot_time() };
    struct note *before = map_lookup(&NOTES, question);
    if (before && note.at - before->at < SECOND) return;
    map_update(&NOTES, question, &note, 0);
}

// --- Departures.

struct ns_common {
    u32 inum;
} KERNEL;

struct net {
    struct ns_common ns;
} KERNEL;

typedef struct {
    struct net *net;
} KERNEL possible_net_t;

struct hlist_node {
    struct hlist_node *next;
} KERNEL;

struct hlist_head {
    struct hlist_node *first;
} KERNEL;

struct net_device {
    int ifindex;
    possible_net_t nd_net;
    struct hlist_head qdisc_hash[QUEUE_LISTS];
} KERNEL;

struct netdev_queue {
    struct net_device *dev;
} KERNEL;

typedef struct {
    u64 v; // whatever it is made of
} u64_stats_t;

struct gnet_stats_basic_sync {
    u64_stats_t bytes;
    u64_stats_t packets;
} KERNEL;

struct Qdisc {
    struct hlist_node hash;
    u32 handle;
    struct netdev_queue *dev_queue;
    struct gnet_stats_basic_sync bstats;
} KERNEL;

struct qdisc_skb_cb {
    u32 pkt_len;
} KERNEL;

struct sk_buff {
    struct sk_buff *next;
    char cb[48];
    u32 priority;
    u32 end;
    u16 network_header;
    u8 *head;
} KERNEL;

struct skb_shared_info {
    u16 gso_size;
    u16 gso_segs;
} KERNEL;

INLINE int is_ours(const struct settings *settings, const struct net_device *device) {
    return (u32)device->ifindex == settings->interface && device->nd_net.net->ns.inum == settings->namespace;
}

INLINE int is_data(const struct settings *settings, const struct sk_buff *skb) {
    return skb->priority - settings->first_class < settings->classes;
}

// As the queue discipline counts it.
INLINE struct counts counted(const struct sk_buff *skb) {
    struct counts counts = { 1, 0 };
    u32 bytes = 0;
    const struct qdisc_skb_cb *noted = (const void *)skb->cb;
    read_kernel(&bytes, sizeof(bytes), &noted->pkt_len);
    counts.bytes = bytes;
    struct skb_shared_info *shared = (void *)(skb->head + skb->end);
    u16 size = 0, segments = 0;
    read_kernel(&size, sizeof(size), &shared->gso_size);
    read_kernel(&segments, sizeof(segments), &shared->gso_segs);
    if (size) counts.packets = segments;
    return counts;
}

// What the queues of the classes have given away, all together; none unless each is found.
INLINE int given_away(const struct settings *settings, const struct net_device *device, struct counts *counts) {
    u32 found = 0, first = settings->first_class & 0xffff;
    for (int list = 0; list < QUEUE_LISTS; list++) {
        struct hlist_node *node = device->qdisc_hash[list].first;
        for (int i = 0; i < MOST_IN_LIST && node; i++) {
            const struct Qdisc *queue =
                (void *)node - __builtin_preserve_field_info(((struct Qdisc *)0)->hash, BYTE_OFFSET);
            u32 handle = 0;
            u64 packets = 0, bytes = 0;
            read_kernel(&handle, sizeof(handle), &queue->handle);
            if (!(handle & 0xffff) && (handle >> 16) - first < settings->classes) {
                read_kernel(&packets, sizeof(packets), &queue->bstats.packets);
                read_kernel(&bytes, sizeof(bytes), &queue->bstats.bytes);
                counts->packets += packets;
                counts->bytes += bytes;
                found++;
            }
            struct hlist_node *next = 0;
            read_kernel(&next, sizeof(next), &node->next);
            node = next;
        }
    }
    return found == settings->classes;
}

INLINE int asks(const struct settings *settings, const struct sk_buff *skb, struct question *question) {
    const u8 *network = skb->head + skb->network_header;
    u8 header[40];
    u32 address[4] = {};
    u32 length = 40;
    if (settings->family == IPV4) {
        length = 20;
        if (read_kernel(header, 20, network) || header[0] != 0x45 || header[9] != UDP) return 0;
        __builtin_memcpy(address, header + 16, 4);
    } else {
        if (read_kernel(header, 40, network) || header[0] >> 4 != IPV6 || header[6] != UDP) return 0;
        __builtin_memcpy(address, header + 24, 16);
    }
    u32 other = 0;
    for (int i = 0; i < 4; i++) other |= address[i] ^ settings->peer[i];
    u16 udp[4];
    if (other || read_kernel(udp, sizeof(udp), network + length)) return 0;
    if (udp[0] != settings->own_port || udp[1] != settings->peer_port) return 0;
    u32 bytes = AS_NETWORK(udp[2]) - UDP_HEADER;
    const u8 *payload = network + length + UDP_HEADER;
    question->direction = SENT;
    if (bytes == PLAIN_BYTES) return !read_kernel(question->payload, PLAIN_BYTES, payload);
    return bytes == KEYED_BYTES && !read_kernel(question->payload, KEYED_BYTES, payload);
}

// A queue discipline may give away several packets at once: those behind the question have been counted with it.
SEC("tp_btf/qdisc_dequeue")
int departs(u64 *arguments) {
    const struct Qdisc *queue = (void *)arguments[0];
    const struct sk_buff *skb = (void *)arguments[3];
    struct settings *settings = told();
    if (!settings || !skb) return 0;
    const struct net_device *device = queue->dev_queue->dev;
    if (!is_ours(settings, device)) return 0;
    struct question question = {};
    struct counts behind = {};
    int found = 0;
    for (int i = 0; i < MOST_AT_ONCE && skb; i++, skb = skb->next) {
        if (is_data(settings, skb)) {
            if (!found) continue;
            struct counts counts = counted(skb);
            behind.packets += counts.packets;
            behind.bytes += counts.bytes;
        } else if (!found) {
            found = asks(settings, skb, &question) && question.payload[0] == 0 && question.payload[1] == QUESTION;
        }
    }
    // Behind the last one looked at there may be more.
    if (!found || skb) return 0;
    struct counts counts = {};
    if (!given_away(settings, device, &counts)) return 0;
    counts.packets -= behind.packets;
    counts.bytes -= behind.bytes;
    take_note(&question, &counts);
    return 0;
}

// --- Arrivals.

INLINE int is_probe(const struct settings *settings, const struct packet *packet) {
    u32 other = packet->family ^ settings->family;
    for (int i = 0; i < 4; i++) other |= packet->source[i] ^ settings->peer[i];
    return !other && packet->protocol == UDP && packet->has_ports && packet->ports[0] == settings->peer_port &&
           packet->ports[1] == settings->own_port;
}

// Not inline: the kernel then checks it once, not once for each rule.
__attribute__((noinline)) int fits(const struct rule *rule, const struct packet *packet) {
    if (!rule || !packet) return 0;
    u32 other = 0;
    for (int i = 0; i < 4; i++) {
        other |= (packet->source[i] ^ rule->source[i]) & rule->source_mask[i];
        other |= (packet->destination[i] ^ rule->destination[i]) & rule->destination_mask[i];
    }
    if (other) return 0;
    if (rule->family && rule->family != packet->family) return 0;
    if (rule->protocol && rule->protocol != packet->protocol) return 0;
    if (rule->code_points && !(rule->code_points >> (packet->code_point & 63) & 1)) return 0;
    if (!rule->ranges) return 1;
    if (!packet->has_ports) return 0;
    u16 port = AS_NETWORK(packet->ports[1]);
    int inside = 0;
    for (int i = 0; i < MOST_PORTS; i++)
        inside |= (i < rule->ranges) & (rule->ports[i][0] <= port) & (port <= rule->ports[i][1]);
    return inside;
}

SEC("classifier")
int arrives(struct __sk_buff *skb) {
    struct settings *settings = told();
    struct packet packet = {};
    if (!settings || skb->pkt_type == TO_ANOTHER_HOST || skb->vlan_present || !parse(skb, &packet)) return NEXT;
    if (is_probe(settings, &packet)) {
        struct question question = { .direction = RECEIVED };
        u32 at = packet.header + UDP_HEADER;
        u32 bytes = packet.bytes - at;
        if (bytes != PLAIN_BYTES && bytes != KEYED_BYTES) return NEXT;
        long failed = skb_load(skb, at, question.payload, PLAIN_BYTES, FROM_NETWORK_HEADER);
        if (bytes == KEYED_BYTES)
            failed |= skb_load(skb, at + PLAIN_BYTES, question.payload + PLAIN_BYTES, KEYED_BYTES - PLAIN_BYTES,
                               FROM_NETWORK_HEADER);
        struct counts *counts = received();
        if (!failed && counts && question.payload[0] == 0 && question.payload[1] == QUESTION)
            take_note(&question, counts);
        return NEXT;
    }
    u32 rules = settings->rules;
    for (u32 i = 0; i < MOST_RULES && i < rules; i++) {
        u32 number = i;
        struct rule *rule = map_lookup(&RULES, &number);
        if (!rule || !fits(rule, &packet)) continue;
        u32 segments = skb->gso_segs ? skb->gso_segs : 1;
        struct counts *counts = received();
        if (!counts) break;
        __sync_fetch_and_add(&counts->packets, segments);
        __sync_fetch_and_add(&counts->bytes,
                             packet.bytes + (u64)(segments - 1) * (packet.header + packet.transport));
        break;
    }
    return NEXT;
}

// `read_kernel` is for programs whose licence says GPL; this one may be used under it too.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
