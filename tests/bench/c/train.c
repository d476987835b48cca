/* The floor for changes: adds routes and rules in one train of netlink messages.
 *
 * usage: train 4|6 FILE
 *
 * FILE is a batch file for ip(8) as the benchmark writes it: of its language just
 *   route add PREFIX [via ADDRESS] dev NAME table N proto N [metric N] [onlink]
 *   rule add [from PREFIX] [oif NAME] lookup N priority N proto N [suppress_prefixlength N]
 * Nothing is read from the kernel but its acknowledgements. */
#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static union {
    char bytes[1 << 20];
    struct nlmsghdr align;
} train, answer;
static size_t used;
static unsigned count;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static struct nlmsghdr *begin(int type, int flags, const void *body, size_t length)
{
    struct nlmsghdr *message = (void *)(train.bytes + used);
    message->nlmsg_type = type;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | flags;
    message->nlmsg_seq = ++count;
    message->nlmsg_len = NLMSG_LENGTH(length);
    memcpy(NLMSG_DATA(message), body, length);
    return message;
}

static void attribute(struct nlmsghdr *message, int type, const void *value, size_t length)
{
    struct rtattr *place = (void *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));
    place->rta_type = type;
    place->rta_len = RTA_LENGTH(length);
    memcpy(RTA_DATA(place), value, length);
    message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + RTA_ALIGN(place->rta_len);
}

/* Reads an address or a prefix; returns the family. */
static int prefix(char *text, unsigned char *bytes, int *bits)
{
    char *slash = strchr(text, '/');
    if (slash)
        *slash = 0;
    int family = strchr(text, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(family, text, bytes) != 1)
        fail(text);
    *bits = slash ? atoi(slash + 1) : family == AF_INET6 ? 128 : 32;
    return family;
}

static void line(char *text, int family)
{
    char *what = strtok(text, " \n");
    if (!what)
        return;
    strtok(NULL, " \n"); /* add */
    int is_route = strcmp(what, "route") == 0;
    unsigned char to[16], via[16];
    int to_bits = 0, via_bits = 0, is_onlink = 0;
    unsigned table = 0, priority = 0, suppress = 0, protocol = 0;
    char *device = NULL;
    if (is_route) {
        char *destination = strtok(NULL, " \n");
        if (strcmp(destination, "default") != 0)
            prefix(destination, to, &to_bits);
    }
    for (char *word; (word = strtok(NULL, " \n"));) {
        if (strcmp(word, "onlink") == 0) {
            is_onlink = 1;
            continue;
        }
        char *value = strtok(NULL, " \n");
        if (strcmp(word, "via") == 0)
            prefix(value, via, &via_bits);
        else if (strcmp(word, "from") == 0)
            prefix(value, to, &to_bits);
        else if (strcmp(word, "dev") == 0 || strcmp(word, "oif") == 0)
            device = value;
        else if (strcmp(word, "table") == 0 || strcmp(word, "lookup") == 0)
            table = strtoul(value, NULL, 10);
        else if (strcmp(word, "metric") == 0 || strcmp(word, "priority") == 0)
            priority = strtoul(value, NULL, 10);
        else if (strcmp(word, "proto") == 0)
            protocol = strtoul(value, NULL, 10);
        else if (strcmp(word, "suppress_prefixlength") == 0)
            suppress = strtoul(value, NULL, 10) + 1;
        else
            fail(word);
    }
    size_t length = family == AF_INET6 ? 16 : 4;
    if (is_route) {
        struct rtmsg body = {.rtm_family = family, .rtm_dst_len = to_bits,
                             .rtm_protocol = protocol, .rtm_type = RTN_UNICAST,
                             .rtm_scope = via_bits || family == AF_INET6 ? RT_SCOPE_UNIVERSE
                                                                         : RT_SCOPE_LINK,
                             .rtm_flags = is_onlink ? RTNH_F_ONLINK : 0};
        struct nlmsghdr *message = begin(RTM_NEWROUTE, NLM_F_EXCL, &body, sizeof body);
        unsigned index = if_nametoindex(device);
        attribute(message, RTA_TABLE, &table, sizeof table);
        attribute(message, RTA_OIF, &index, sizeof index);
        if (to_bits)
            attribute(message, RTA_DST, to, length);
        if (via_bits)
            attribute(message, RTA_GATEWAY, via, length);
        if (priority)
            attribute(message, RTA_PRIORITY, &priority, sizeof priority);
        used += NLMSG_ALIGN(message->nlmsg_len);
    } else {
        struct fib_rule_hdr body = {.family = family, .src_len = to_bits,
                                    .action = FR_ACT_TO_TBL};
        unsigned char tag = protocol;
        struct nlmsghdr *message = begin(RTM_NEWRULE, NLM_F_EXCL, &body, sizeof body);
        attribute(message, FRA_TABLE, &table, sizeof table);
        attribute(message, FRA_PRIORITY, &priority, sizeof priority);
        attribute(message, FRA_PROTOCOL, &tag, sizeof tag);
        if (to_bits)
            attribute(message, FRA_SRC, to, length);
        if (device)
            attribute(message, FRA_OIFNAME, device, strlen(device) + 1);
        if (suppress) {
            suppress -= 1;
            attribute(message, FRA_SUPPRESS_PREFIXLEN, &suppress, sizeof suppress);
        }
        used += NLMSG_ALIGN(message->nlmsg_len);
    }
}

int main(int words, char **word)
{
    if (words != 3) {
        fputs("usage: train 4|6 FILE\n", stderr);
        return 2;
    }
    int family = word[1][0] == '6' ? AF_INET6 : AF_INET;
    FILE *file = fopen(word[2], "re");
    if (!file)
        fail(word[2]);
    char text[512];
    while (fgets(text, sizeof text, file)) {
        if (used + 1024 > sizeof train.bytes)
            fail("too many lines");
        line(text, family);
    }
    int channel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(channel, train.bytes, used, 0, (void *)&kernel, sizeof kernel) < 0)
        fail("failed to send");
    int is_bad = 0;
    for (unsigned left = count; left > 0;) {
        int length = recv(channel, answer.bytes, sizeof answer.bytes, 0);
        if (length < 0)
            fail("failed to receive");
        struct nlmsghdr *message = (void *)answer.bytes;
        for (; NLMSG_OK(message, length); message = NLMSG_NEXT(message, length)) {
            if (message->nlmsg_type != NLMSG_ERROR)
                continue;
            int code = ((struct nlmsgerr *)NLMSG_DATA(message))->error;
            if (code) {
                fprintf(stderr, "line %u: %s\n", message->nlmsg_seq, strerror(-code));
                is_bad = 1;
            }
            left--;
        }
    }
    return is_bad;
}
