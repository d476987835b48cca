//! Which files count, in which order, and what they add up to.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use leaseroute_config::{
    ConfigError, Document, Folders, Loaded, LogLevel, Warning, load, load_text,
};
use leaseroute_core::{Settings, TableScheme, When};
use proptest::prelude::*;

/// A vendor's and an administrator's folder.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn with(self, file: &str, text: &str) -> Self {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), text).unwrap();
        self
    }

    fn with_link(self, file: &str, target: &str) -> Self {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        symlink(target, self.path(file)).unwrap();
        self
    }

    fn try_load(&self) -> Result<Loaded, ConfigError> {
        load(&Folders::of(self.path("usr"), self.path("etc")))
    }

    fn load(&self) -> Loaded {
        self.try_load().unwrap()
    }

    /// The files that were read, without the folder around them.
    fn files(&self, loaded: &Loaded) -> Vec<String> {
        let inner = |path: &PathBuf| {
            let inner = path.strip_prefix(self.0.path()).unwrap();
            inner.to_str().unwrap().to_owned()
        };
        loaded.files.iter().map(inner).collect()
    }
}

#[test]
fn nothing_at_all_is_the_defaults() {
    let loaded = Home::new().load();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.log_level, LogLevel::Info);
    assert!(loaded.files.is_empty() && loaded.warnings.is_empty());
}

#[test]
fn the_administrators_config_replaces_the_vendors() {
    let home = Home::new()
        .with("usr/config.toml", "protocol = 80\nwhen = \"always\"")
        .with("etc/config.toml", "protocol = 81");
    let loaded = home.load();
    assert_eq!(home.files(&loaded), ["etc/config.toml"]);
    assert_eq!(loaded.settings.protocol.get(), 81);
    assert_eq!(loaded.settings.when, When::Multihomed);
}

#[test]
fn drop_ins_of_both_folders_merge_by_name_and_apply_in_order() {
    let home = Home::new()
        .with("etc/config.toml", "protocol = 80")
        .with("usr/conf.d/30-last.toml", "protocol = 83")
        .with(
            "usr/conf.d/20-same.toml",
            "protocol = 99\nwhen = \"always\"",
        )
        .with(
            "etc/conf.d/20-same.toml",
            "protocol = 82\n[log]\nlevel = \"debug\"",
        )
        .with(
            "etc/conf.d/10-first.toml",
            "protocol = 81\n[rules]\npriority = 5000",
        );
    let loaded = home.load();
    assert_eq!(
        home.files(&loaded),
        [
            "etc/config.toml",
            "etc/conf.d/10-first.toml",
            "etc/conf.d/20-same.toml",
            "usr/conf.d/30-last.toml"
        ]
    );
    assert_eq!(loaded.settings.protocol.get(), 83);
    assert_eq!(loaded.settings.priority.get(), 5000);
    assert_eq!(loaded.settings.when, When::Multihomed);
    assert_eq!(loaded.log_level, LogLevel::Debug);
}

#[test]
fn an_empty_file_or_a_link_to_the_null_device_masks() {
    let home = Home::new()
        .with("usr/config.toml", "protocol = 80")
        .with_link("etc/config.toml", "/dev/null")
        .with("usr/conf.d/a.toml", "when = \"always\"")
        .with_link("etc/conf.d/a.toml", "/dev/null")
        .with("usr/conf.d/b.toml", "permanent_addresses = true")
        .with("etc/conf.d/b.toml", "");
    assert_eq!(home.load().settings, Settings::default());
}

#[test]
fn a_drop_in_that_leads_nowhere_is_reported() {
    let home = Home::new()
        .with("usr/conf.d/a.toml", "when = \"always\"")
        .with_link("etc/conf.d/a.toml", "gone");
    let loaded = home.load();
    let path = home.path("etc/conf.d/a.toml");
    assert_eq!(loaded.warnings, [Warning::Missing { path }]);
    assert_eq!(loaded.settings, Settings::default());
}

#[test]
fn only_visible_toml_files_are_drop_ins() {
    let bad = "this is not read";
    let home = Home::new()
        .with("etc/conf.d/a.toml.dpkg-old", bad)
        .with("etc/conf.d/a.toml~", bad)
        .with("etc/conf.d/.a.toml", bad)
        .with("etc/conf.d/.toml", bad)
        .with("etc/conf.d/README", bad)
        .with("etc/conf.d/deeper/a.toml", bad);
    assert!(home.load().files.is_empty());
}

#[test]
fn one_folder_can_replace_both() {
    let home = Home::new().with("other/conf.d/a.toml", "protocol = 90");
    let loaded = load(&Folders::new(Some(home.path("other")))).unwrap();
    assert_eq!(loaded.settings.protocol.get(), 90);
}

#[test]
fn sections_of_later_files_come_later() {
    let home = Home::new()
        .with(
            "etc/config.toml",
            "[[interface]]\nmatch = { name = \"*\" }\nmanage = false",
        )
        .with(
            "etc/conf.d/a.toml",
            "[[interface]]\nmatch.mac = \"02:00:5E:10:00:01\"\nmanage = true\ntable = 500",
        );
    let sections = home.load().settings.interfaces;
    assert_eq!(sections.len(), 2);
    assert_eq!(sections[0].manage, Some(false));
    assert_eq!(sections[1].table.unwrap().get(), 500);
    assert_eq!(
        sections[1].matches.mac.unwrap().to_string(),
        "02:00:5e:10:00:01"
    );
}

#[test]
fn a_later_base_is_checked_with_an_earlier_scheme() {
    let home = Home::new()
        .with("usr/conf.d/a.toml", "[tables]\nscheme = \"position\"")
        .with("etc/conf.d/b.toml", "[tables]\nbase = 254");
    let error = home.try_load().unwrap_err();
    let [diagnostic] = error.diagnostics() else {
        panic!("{error}");
    };
    assert_eq!(diagnostic.path, home.path("etc/conf.d/b.toml"));
    assert_eq!((diagnostic.line, diagnostic.column), (2, 8));
}

#[test]
fn unknown_keys_are_reported_with_line_and_path() {
    let text = "colour = 1\n[tables]\nschema = 2\n[[interface]]\nmatch = { name = \"a\" }\n\
                [[interface]]\nmatch = { name = \"b\", nmae = \"c\" }\n[hooks.dhclient]\nx = 1\n";
    let home = Home::new().with("etc/config.toml", text);
    let path = home.path("etc/config.toml");
    let expected = [
        (1, "colour"),
        (8, "hooks"),
        (7, "interface[2].match.nmae"),
        (3, "tables.schema"),
    ]
    .map(|(line, key)| Warning::UnknownKey {
        path: path.clone(),
        line,
        key: key.to_owned(),
    });
    assert_eq!(home.load().warnings, expected);
}

#[test]
fn an_order_that_no_scheme_heeds_is_reported() {
    let home = Home::new().with("etc/config.toml", "\n[tables]\norder = [\"eth0\"]");
    let path = home.path("etc/config.toml");
    assert_eq!(
        home.load().warnings,
        [Warning::UnusedOrder { path, line: 3 }]
    );
}

#[test]
fn mistakes_in_all_files_are_listed() {
    let home = Home::new()
        .with("etc/config.toml", "when = 1")
        .with("etc/conf.d/a.toml", "when = 2");
    assert_eq!(home.try_load().unwrap_err().diagnostics().len(), 2);
}

#[test]
fn what_is_no_file_is_an_error() {
    let home = Home::new().with("etc/config.toml/inner", "");
    let error = home.try_load().unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
}

#[test]
fn a_huge_file_is_not_read_to_its_end() {
    let home = Home::new().with_link("etc/config.toml", "/dev/zero");
    let error = home.try_load().unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { .. }), "{error}");
}

/// The shipped example with its keys uncommented, and as it is.
fn example() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/config.toml");
    let text = fs::read_to_string(path).unwrap();
    // Prose has a blank after the "#", keys and section heads have none.
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let uncommented: Vec<String> = text.lines().map(uncomment).collect();
    (uncommented.join("\n"), text)
}

#[test]
fn the_shipped_example_is_the_defaults() {
    let (uncommented, shipped) = example();
    for text in [&uncommented, &shipped] {
        let loaded = Home::new().with("etc/config.toml", text).load();
        assert_eq!(loaded.settings, Settings::default());
        assert_eq!(loaded.log_level, LogLevel::default());
        assert_eq!(loaded.warnings, []);
    }
}

#[test]
fn the_shipped_example_gives_every_key() {
    let (uncommented, shipped) = example();
    let loaded = Home::new().load();
    let every_key = Document::from(&loaded).to_toml().unwrap();
    for line in every_key.lines().filter(|line| !line.is_empty()) {
        assert!(uncommented.lines().any(|l| l == line), "{line}");
    }
    for word in [
        "order", "name", "mac", "driver", "manage", "table", "priority", "required",
    ] {
        assert!(shipped.contains(&format!("#   {word}")), "{word}");
    }
}

#[test]
fn the_example_of_a_section_is_good() {
    let (_, shipped) = example();
    let section = shipped.split("#   [[interface]]\n").nth(1).unwrap();
    let lines: Vec<&str> = section
        .lines()
        .map(|l| l.trim_start_matches("#   "))
        .collect();
    let text = format!("[[interface]]\n{}", lines.join("\n"));
    let loaded = Home::new().with("etc/config.toml", &text).load();
    assert_eq!(loaded.settings.interfaces[0].table.unwrap().get(), 500);
    assert_eq!(loaded.warnings, []);
}

#[test]
fn what_is_in_force_reads_back() {
    let home = Home::new().with(
        "etc/config.toml",
        r#"
        when = "always"
        protocol = 99
        permanent_addresses = true
        tables = { scheme = "position", base = 100, order = ["eth0", "a\"b*"] }
        rules.priority = 1000
        log.level = "trace"
        [[interface]]
        match = { name = "eth*", mac = "02:00:5e:10:00:01", driver = "ena" }
        manage = false
        [[interface]]
        match = { driver = "veth" }
        table = 4294967295
        priority = 1100
        required = true
        "#,
    );
    let loaded = home.load();
    assert!(
        matches!(&loaded.settings.tables, TableScheme::Position { base: 100, order } if order.len() == 2)
    );
    let written = Document::from(&loaded).to_toml().unwrap();
    let again = load_text(Path::new("written"), &written).unwrap();
    assert_eq!(again.settings, loaded.settings, "{written}");
    assert_eq!(again.log_level, loaded.log_level);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let home = Home::new().with("etc/x", "");
        fs::write(home.path("etc/config.toml"), bytes).unwrap();
        if let Err(error) = home.try_load() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// Words of the grammar in any order come further than random bytes do.
    #[test]
    fn no_words_make_it_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "when", "protocol", "tables", "base", "order", "rules", "priority", "interface", "match",
        "name", "table", "mac", ".", " = ", "[", "]", "[[", "]]", "{", "}", ",", "\n", "\n\n", "\"",
        "\"\"\"", "'", "é", "7600", "-1", "99999999999999999999", "0x", "1e9", "true", "#", "\t", "\r",
        "\"eth*\"", "\"[\"", "\u{feff}", "\"position\"",
    ]), 0..60)) {
        let home = Home::new().with("etc/config.toml", &words.concat());
        if let Err(error) = home.try_load() {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
