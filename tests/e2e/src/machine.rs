//! The host of the bench with files of its own, and the real dhclient on it.
//!
//! One process holds a mount, UTS and PID namespace in which `/etc`, `/var` and
//! `/usr/libexec` are copy-on-write and `/run` is empty, so that dhclient-script may write
//! where it likes. All that runs there ends with it, and it ends when this value is dropped
//! or the test dies. `dhclient` runs once for each card and family, as ifupdown starts it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Card, Fabric, Layout};
use leaseroute_lab::probe::{Matrix, Server, connect};

use crate::daemon::{Daemon, read};
use crate::kernel::{Face, Own};
use crate::wait_for;

/// How long a connection may take: far more than it needs.
pub const ANSWER: Duration = Duration::from_secs(3);
/// Where the shims look for the program.
pub const PROGRAM: &str = "/usr/libexec/leaseroute/leaseroute-dhclient";
/// Where Debian's script looks for exit hooks.
const HOOKS: &str = "/etc/dhcp/dhclient-exit-hooks.d";
/// The tools without which nothing here can run.
const TOOLS: &[&str] = &[
    "dhclient",
    "dnsmasq",
    "radvd",
    "ip",
    "unshare",
    "nsenter",
    "setpriv",
    "run-parts",
];

/// Runs as process 1 of the namespaces until its input ends. Its own process number, as
/// the outside knows it, is read before the new `/proc` hides it.
const INIT: &str = r#"
set -e
read -r outside rest </proc/self/stat
mount -t tmpfs -o mode=755 tmpfs /mnt
for d in etc var usr/libexec; do
    mkdir -p /mnt/$d /mnt/work/$d
    mount -t overlay overlay -o "lowerdir=/$d,upperdir=/mnt/$d,workdir=/mnt/work/$d" /$d
done
mount -t tmpfs -o mode=755 tmpfs /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
hostname bench
rm -f /var/lib/dhcp/* /etc/resolv.conf
: >/etc/resolv.conf
echo "$outside"
exec cat
"#;

/// Runs last of all exit hooks: shows that the hooks before it neither ended the shell nor
/// kept it, and when.
const RECORDER: &str = r#"echo "$reason $interface ${new_ip_address:-${new_ip6_address:--}}" >>/run/events
"#;

/// What makes dhclient quick.
const CONF: &str = "
initial-interval 1;
backoff-cutoff 2;
reboot 2;
retry 1;
timeout 20;
";

/// Whether our shim is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// As a package installs it.
    Installed,
    /// Not at all.
    Absent,
}

/// The host, its files and its clients.
#[derive(Debug)]
pub struct Machine {
    clients: BTreeMap<(usize, Family), Daemon>,
    /// Held open: what the init process waits on.
    init: Child,
    pid: u32,
    /// Answers probes on every address of the host.
    _server: Server,
    folder: tempfile::TempDir,
    /// The cloud around it.
    pub fabric: Fabric,
}

impl Machine {
    /// Builds the cloud and the host's files. Nothing is configured yet.
    #[must_use]
    pub fn new(layout: &Layout, hook: Hook) -> Self {
        for tool in TOOLS {
            let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
                .iter()
                .any(|folder| Path::new(folder).join(tool).exists());
            assert!(
                found,
                "{tool} is missing: tests/run installs what these tests need"
            );
        }
        let fabric = Fabric::new(layout).unwrap();
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["--propagation", "private", "sh", "-c", INIT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut init = fabric.host().spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(init.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = line
            .trim()
            .parse()
            .expect("the init process said its number");
        let machine = Self {
            clients: BTreeMap::new(),
            init,
            pid,
            _server: Server::everywhere(fabric.host()).unwrap(),
            folder: tempfile::tempdir().unwrap(),
            fabric,
        };
        machine.install(hook);
        machine
    }

    fn install(&self, hook: Hook) {
        let conf = self.path("/etc/dhcp/dhclient.conf");
        fs::write(&conf, read(&conf) + CONF).unwrap();
        self.write(&format!("{HOOKS}/zzz-recorder"), RECORDER, 0o644);
        self.write("/run/events", "", 0o644);
        fs::create_dir_all(self.path("/usr/libexec/leaseroute")).unwrap();
        fs::copy(program(), self.path(PROGRAM)).unwrap();
        if hook == Hook::Installed {
            let shim = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../hooks/dhclient/debian/zz-leaseroute");
            fs::copy(shim, self.path(&format!("{HOOKS}/zz-leaseroute"))).unwrap();
        }
    }

    /// A file of the host, as the test reaches it.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid))
    }

    /// Writes a file of the host, with its folders.
    pub fn write(&self, inside: &str, text: &str, mode: u32) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A program on the host, with an empty environment but for `PATH`.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "--target",
                &self.pid.to_string(),
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
            ])
            .args(["--", program])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Runs a program on the host to its end.
    pub fn output(&self, mut command: Command) -> Output {
        self.fabric.host().run(move || command.output()).unwrap()
    }

    /// Runs a shell command on the host; it must succeed.
    pub fn shell(&self, script: &str) -> String {
        let mut command = self.command("sh");
        command.args(["-ec", script]);
        let output = self.output(command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{script}: {}\n{said}{error}",
            output.status
        );
        said
    }

    /// Calls the program directly, as the shim does, with these variables.
    #[must_use]
    pub fn hook(&self, variables: &[(&str, &str)]) -> Command {
        let mut command = self.command(PROGRAM);
        command.envs(variables.iter().copied());
        command
    }

    /// A card by its number.
    #[must_use]
    pub fn card(&self, number: usize) -> Card {
        self.fabric.card(number).unwrap().clone()
    }

    /// Sets a card up and starts dhclient on it, in the foreground, with a metric of its own.
    pub fn start_client(&mut self, number: usize, family: Family) {
        let card = self.card(number);
        self.shell(&format!("ip link set {} up", card.name));
        if family == Family::Ipv6 {
            // dhclient -6 gives up at once without a link-local address.
            wait_for("the card has a link-local address", || {
                let said = self.shell(&format!("ip -6 -o addr show dev {} scope link", card.name));
                if said.contains("fe80") && !said.contains("tentative") {
                    Ok(())
                } else {
                    Err(said)
                }
            });
        }
        self.run_client(number, family, &[&format!("-{}", version(family))]);
    }

    /// Starts `dhclient -6 -S`, which asks for options alone.
    pub fn start_stateless_client(&mut self, number: usize) {
        self.run_client(number, Family::Ipv6, &["-6", "-S"]);
    }

    fn run_client(&mut self, number: usize, family: Family, how: &[&str]) {
        let mut command = self.command("dhclient");
        command
            .args(how)
            .args(["-d", "-v"])
            .args(self.files_of(number, family))
            .args(["-e", &format!("IF_METRIC={}", 100 + number)])
            .arg(self.card(number).name.to_string());
        let log = self.log_file(number, family);
        let client = Daemon::start(self.fabric.host(), command, &log);
        self.clients.insert((number, family), client);
    }

    /// Starts dhclient on every card for the given families.
    pub fn start_clients(&mut self, families: &[Family]) {
        let cards: Vec<usize> = self.fabric.cards().map(|card| card.number).collect();
        for number in cards {
            for &family in families {
                self.start_client(number, family);
            }
        }
    }

    /// Runs dhclient once more with `-r` (release) or `-x` (stop): it ends the running one.
    pub fn end_client(&mut self, number: usize, family: Family, how: &str) {
        let card = self.card(number);
        let mut command = self.command("dhclient");
        command
            .args([
                format!("-{}", version(family)),
                how.to_owned(),
                "-v".to_owned(),
            ])
            .args(self.files_of(number, family))
            .arg(card.name.to_string());
        let output = self.output(command);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // What this second dhclient's script said belongs to the card's log.
        let log = self.log_file(number, family);
        fs::write(&log, read(&log) + &String::from_utf8_lossy(&output.stderr)).unwrap();
        self.clients.remove(&(number, family));
    }

    /// Kills dhclient of a card and family without a word to anybody.
    pub fn kill_client(&mut self, number: usize, family: Family) {
        let [_, pid, ..] = self.files_of(number, family);
        self.shell(&format!("kill -KILL $(cat {pid})"));
        self.clients.remove(&(number, family));
    }

    fn files_of(&self, number: usize, family: Family) -> [String; 4] {
        let name = format!("{}.eth{number}", version(family));
        [
            "-pf".to_owned(),
            format!("/run/dhclient{name}.pid"),
            "-lf".to_owned(),
            format!("/var/lib/dhcp/dhclient{name}.leases"),
        ]
    }

    fn log_file(&self, number: usize, family: Family) -> PathBuf {
        self.folder
            .path()
            .join(format!("dhclient{}.eth{number}.log", version(family)))
    }

    /// What dhclient, its script and the hooks have said of a card.
    #[must_use]
    pub fn log(&self, number: usize, family: Family) -> String {
        read(&self.log_file(number, family))
    }

    /// All the clients' logs, for the message of a failed test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for &(number, family) in self.clients.keys() {
            let log = self.log(number, family);
            text.push_str(&format!("-- dhclient {family} eth{number}\n{log}\n"));
        }
        text
    }

    /// The events that reached the end of the hooks: `REASON INTERFACE ADDRESS`.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        read(&self.path("/run/events"))
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Waits until an event that begins so has reached the end of the hooks `times` times.
    pub fn wait_event(&self, begins: &str, times: usize) {
        wait_for(&format!("{begins} was seen {times} times"), || {
            let events = self.events();
            let seen = events
                .iter()
                .filter(|event| event.starts_with(begins))
                .count();
            if seen >= times {
                Ok(())
            } else {
                Err(format!("{events:#?}\n{}", self.logs()))
            }
        });
    }

    /// Every card in one family, with the address that the fabric gives it.
    #[must_use]
    pub fn faces(&self, family: Family) -> Vec<Face> {
        self.fabric
            .cards()
            .map(|card| Face::of(card, family))
            .collect()
    }

    /// Waits until our rules and routes are those of these uplinks and no others.
    pub fn wait_own(&self, family: Family, uplinks: &[Face]) {
        let expected = Own::expected(uplinks);
        wait_for(&format!("the {family} rules and routes are right"), || {
            let own = Own::read(self.fabric.host(), family);
            if own == expected {
                return Ok(());
            }
            Err(format!("{}\n{}", own.differences(&expected), self.logs()))
        });
    }

    /// The client outside and a neighbour in every subnet reach every card.
    pub fn assert_all_reach(&self, families: &[Family]) {
        let matrix = Matrix::probe(&self.fabric, families, ANSWER);
        assert!(matrix.is_complete(), "\n{matrix}\n{}", self.logs());
    }

    /// The client outside reaches an address of the host.
    pub fn assert_reached(&self, address: IpAddr) {
        let outcome = connect(self.fabric.client(), address, ANSWER);
        assert!(
            outcome.is_answered(),
            "{address}: {outcome}\n{}",
            self.logs()
        );
    }

    /// A folder for the files of a test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The end of its input ends it, and with it all that runs in its namespaces.
        drop(self.init.stdin.take());
        self.init.wait().ok();
    }
}

fn version(family: Family) -> u8 {
    match family {
        Family::Ipv4 => 4,
        Family::Ipv6 => 6,
    }
}

/// The program under test: in the folder that `LEASEROUTE_TEST_BIN` names, else the
/// release build.
#[must_use]
pub fn program() -> PathBuf {
    let folder = std::env::var_os("LEASEROUTE_TEST_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"),
        PathBuf::from,
    );
    let program = folder.join("leaseroute-dhclient");
    assert!(
        program.exists(),
        "{} is missing: cargo build --release",
        program.display()
    );
    program
}
