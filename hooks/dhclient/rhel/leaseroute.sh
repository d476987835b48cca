# shellcheck shell=sh
# Option handler in /etc/dhcp/dhclient.d: hands the event to leaseroute.
#
# Two hosts read this file into their own shell and then call a function by its name:
# dhclient-script of the RHEL family (bash, with IFS and the working directory changed) and
# NetworkManager's 11-dhclient, which gives no reason. Nothing here may change the caller's
# shell: no exit, exec, cd, trap, option or assignment, and the status is always 0. The
# file must be executable, or both skip it.

# A lease was gained, confirmed or changed. With neither a reason nor an address it is
# NetworkManager's `up` of a connection without DHCP.
leaseroute_config() {
    if [ -n "${reason:-}${new_ip_address:-}" ]; then
        leaseroute_dhclient BOUND
    fi
}

# A lease was lost or given back. dhclient-script takes the IPv4 address away only
# after this call.
leaseroute_restore() {
    leaseroute_dhclient STOP
}

# Runs the program. $1 stands for the reason where the caller has none.
leaseroute_dhclient() {
    if [ -f /usr/libexec/leaseroute/leaseroute-dhclient ] &&
       [ -x /usr/libexec/leaseroute/leaseroute-dhclient ]; then
        # Everything in one subshell, so that nothing comes back from it.
        (
            [ -n "${reason:-}" ] || reason=$1
            # 11-dhclient does not export the interface; the other names are those that
            # an enter hook may have set itself. An unset one stays unset.
            export reason interface new_ip_address new_subnet_mask new_routers \
                new_interface_mtu new_static_routes new_classless_static_routes \
                new_rfc3442_classless_static_routes new_ms_classless_static_routes
            # The program bounds its own time. Its callers would wait for ever if it
            # failed to, hence a second bound where there is a `timeout`.
            if command -v timeout >/dev/null 2>&1; then
                timeout -s KILL 30 /usr/libexec/leaseroute/leaseroute-dhclient
            else
                /usr/libexec/leaseroute/leaseroute-dhclient
            fi
        ) </dev/null >/dev/null || :
    fi
}
