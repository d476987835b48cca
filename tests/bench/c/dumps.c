/* The floor for reading: the dumps of a hook that finds nothing to change, and nothing else.
 *
 * usage: dumps 4|6 [main:INDEX...] [TABLE...]
 *
 * Links, addresses and rules are dumped as the hook does it, with the same filters; then
 * of table main the IPv4 default routes (by reading no further than them) or the IPv6
 * routes of the named interfaces; then the named tables. */
#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef NETLINK_GET_STRICT_CHK
#define NETLINK_GET_STRICT_CHK 12
#endif
#define SKIP_STATISTICS (1 << 3) /* RTEXT_FILTER_SKIP_STATS */

static int channel = -1;
static unsigned sequence;
static unsigned long seen;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void open_channel(void)
{
    if (channel >= 0)
        close(channel);
    int yes = 1;
    channel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (channel < 0 || setsockopt(channel, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &yes, sizeof yes))
        fail("failed to open a socket");
}

/* Whether a route lies behind the IPv4 default routes in the kernel's order. */
static int is_behind_defaults(const struct nlmsghdr *message)
{
    const struct rtmsg *route = NLMSG_DATA(message);
    int length = RTM_PAYLOAD(message);
    for (struct rtattr *a = RTM_RTA(route); RTA_OK(a, length); a = RTA_NEXT(a, length))
        if (a->rta_type == RTA_DST)
            return *(const unsigned *)RTA_DATA(a) != 0;
    return 0;
}

static void dump(int type, const void *header, size_t length, int attribute, unsigned value,
                 int index, int only_defaults)
{
    struct {
        struct nlmsghdr head;
        char body[64];
    } request = {.head = {.nlmsg_len = NLMSG_LENGTH(length),
                          .nlmsg_type = type,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                          .nlmsg_seq = ++sequence}};
    struct {
        struct rtattr head;
        unsigned value;
    } part = {{sizeof part, attribute}, value};
    memcpy(NLMSG_DATA(&request.head), header, length);
    if (attribute) {
        memcpy((char *)&request + request.head.nlmsg_len, &part, sizeof part);
        request.head.nlmsg_len += sizeof part;
    }
    if (index) {
        part.head.rta_type = RTA_OIF;
        part.value = index;
        memcpy((char *)&request + request.head.nlmsg_len, &part, sizeof part);
        request.head.nlmsg_len += sizeof part;
    }
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(channel, &request, request.head.nlmsg_len, 0, (void *)&kernel, sizeof kernel) < 0)
        fail("failed to send");
    static union {
        char bytes[8192];
        struct nlmsghdr align;
    } answer;
    for (int is_enough = 0;;) {
        int is_last = is_enough;
        int left = recv(channel, answer.bytes, sizeof answer.bytes, 0);
        if (left < 0)
            fail("failed to receive");
        struct nlmsghdr *message = (void *)answer.bytes;
        for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR)
                return;
            seen++;
            if (only_defaults)
                is_enough |= is_behind_defaults(message);
        }
        if (is_last) {
            /* A dump ends early only with its socket. */
            open_channel();
            return;
        }
    }
}

int main(int count, char **words)
{
    if (count < 2) {
        fputs("usage: dumps 4|6 [main:INDEX...] [TABLE...]\n", stderr);
        return 2;
    }
    unsigned char family = words[1][0] == '6' ? AF_INET6 : AF_INET;
    struct ifinfomsg link = {0};
    struct ifaddrmsg address = {.ifa_family = family};
    struct fib_rule_hdr rule = {.family = family};
    struct rtmsg route = {.rtm_family = family};
    struct rtmsg main_table = {.rtm_family = family, .rtm_table = RT_TABLE_MAIN};
    struct rtmsg by_interface = {.rtm_family = family, .rtm_table = RT_TABLE_MAIN,
                                 .rtm_type = RTN_UNICAST};
    open_channel();
    dump(RTM_GETLINK, &link, sizeof link, IFLA_EXT_MASK, SKIP_STATISTICS, 0, 0);
    dump(RTM_GETADDR, &address, sizeof address, 0, 0, 0, 0);
    if (family == AF_INET)
        dump(RTM_GETROUTE, &main_table, sizeof main_table, RTA_TABLE, RT_TABLE_MAIN, 0, 1);
    int next = 2;
    for (; next < count && strncmp(words[next], "main:", 5) == 0; next++)
        dump(RTM_GETROUTE, &by_interface, sizeof by_interface, RTA_TABLE, RT_TABLE_MAIN,
             atoi(words[next] + 5), 0);
    dump(RTM_GETRULE, &rule, sizeof rule, 0, 0, 0, 0);
    for (; next < count; next++)
        dump(RTM_GETROUTE, &route, sizeof route, RTA_TABLE, strtoul(words[next], NULL, 10), 0, 0);
    return seen == 0;
}
