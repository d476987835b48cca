//! Rules: what is added, told apart, found and left alone.

use leaseroute_core::{Family, ObservedRule, Operation, Priority, Rule, Selector, TableId};
use leaseroute_kernel::Kernel as _;

use super::Scenario;
use super::bench::{
    Bench, FOREIGN, PROTOCOL, all_done, name, net, numbers, rule, rules, shown, succeeded,
};

pub(super) fn scenarios<B: Bench>() -> Vec<Scenario<B>> {
    vec![
        Scenario {
            name: "rules of every kind come and go",
            why: "existing on add and missing on delete are success, order is by priority",
            play: come_and_go,
        },
        Scenario {
            name: "the kernel's own rules",
            why: "an event must know whether the local rule is where it belongs",
            play: kernels_own,
        },
        Scenario {
            name: "somebody else's rules stay",
            why: "one that differs in a mark or in its maker only must not go for ours",
            play: foreign_stay,
        },
        Scenario {
            name: "a rule with a mark goes alone",
            why: "the dumped message is sent back whole, so nothing else can match",
            play: marked_goes_alone,
        },
        Scenario {
            name: "a rule without a source beside one with it",
            why: "the kernel takes the first for a repeat of the second and says it exists",
            play: all_beside_some,
        },
    ]
}

fn of_every_kind(family: Family) -> [Rule; 4] {
    let source = numbers(family).address;
    let host = Selector::From(source.ip().into());
    let prefix = Selector::From(net(numbers(family).subnet));
    [
        Rule {
            table: TableId::LOCAL,
            ..rule(family, 7600, Selector::All)
        },
        Rule {
            suppress_prefix_length: Some(0),
            ..rule(family, 7610, host)
        },
        Rule {
            suppress_prefix_length: Some(4),
            table: TableId::MAIN,
            ..rule(family, 7620, prefix)
        },
        // The interface need not exist.
        rule(family, 7630, Selector::Oif(name("absent0"))),
    ]
}

fn delete_all(rules: Vec<ObservedRule>) -> Vec<Operation> {
    rules.into_iter().map(Operation::DeleteRule).collect()
}

fn come_and_go<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        let wanted = of_every_kind(family);
        let mut add = wanted.clone().map(Operation::AddRule);
        add.reverse();
        for _ in 0..2 {
            all_done(bench, &add);
            let seen = rules(bench, family);
            assert_eq!(seen, wanted.each_ref().map(shown));
            for (wanted, seen) in wanted.iter().zip(&seen) {
                assert!(wanted.is_met_by(seen), "{wanted} and {seen}");
            }
        }
        let by_message = delete_all(
            succeeded(bench.kernel().rules(family))
                .into_iter()
                .filter(|rule| rule.protocol == PROTOCOL)
                .collect(),
        );
        all_done(bench, &by_message);
        assert_eq!(rules(bench, family), []);
        all_done(bench, &by_message);
        // From a file there is no message, only what it says.
        all_done(bench, &add);
        all_done(bench, &delete_all(wanted.each_ref().map(shown).to_vec()));
        assert_eq!(rules(bench, family), []);
    }
}

fn kernels_own<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        let seen: Vec<_> = succeeded(bench.kernel().rules(family))
            .iter()
            .map(|rule| (rule.priority.get(), rule.table))
            .collect();
        let mut wanted = vec![(0, TableId::LOCAL), (32766, TableId::MAIN)];
        if family == Family::Ipv4 {
            wanted.push((32767, TableId::DEFAULT));
        }
        assert_eq!(seen, wanted);
    }
}

fn foreign_stay<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        let source = numbers(family).address.ip().into();
        let ours = rule(family, 7630, Selector::From(source));
        let theirs = [
            ObservedRule {
                protocol: FOREIGN,
                mark: Some((7, 0xff)),
                ..shown(&ours)
            },
            ObservedRule {
                protocol: FOREIGN,
                ..shown(&ours)
            },
            ObservedRule {
                protocol: FOREIGN,
                priority: Priority::observed(100),
                ..shown(&ours)
            },
        ];
        for rule in &theirs {
            bench.add_rule(rule);
        }
        let mut before = rules(bench, family);
        all_done(bench, &[Operation::AddRule(ours.clone())]);
        assert_eq!(rules(bench, family).len(), before.len() + 1);
        let delete = delete_all(
            succeeded(bench.kernel().rules(family))
                .into_iter()
                .filter(|rule| rule.protocol == PROTOCOL)
                .collect(),
        );
        assert_eq!(delete.len(), 1);
        all_done(bench, &delete);
        all_done(bench, &delete);
        let mut after = rules(bench, family);
        before.sort();
        after.sort();
        assert_eq!(after, before);
    }
}

fn marked_goes_alone<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        let source = numbers(family).address.ip().into();
        let plain = rule(family, 7630, Selector::From(source));
        all_done(bench, &[Operation::AddRule(plain.clone())]);
        let marked = ObservedRule {
            mark: Some((0x10, 0xf0)),
            ..shown(&plain)
        };
        bench.add_rule(&marked);
        assert_eq!(rules(bench, family), [shown(&plain), marked]);
        let delete = delete_all(
            succeeded(bench.kernel().rules(family))
                .into_iter()
                .filter(|rule| rule.mark.is_some())
                .collect(),
        );
        all_done(bench, &delete);
        assert_eq!(rules(bench, family), [shown(&plain)]);
    }
}

fn all_beside_some<B: Bench>(bench: &B) {
    for family in Family::BOTH {
        let some = rule(
            family,
            7600,
            Selector::From(numbers(family).address.ip().into()),
        );
        let all = rule(family, 7600, Selector::All);
        all_done(bench, &[some.clone(), all.clone()].map(Operation::AddRule));
        assert_eq!(rules(bench, family), [shown(&some)]);
        // The other way round they are two.
        all_done(bench, &delete_all(vec![shown(&some)]));
        all_done(bench, &[all.clone(), some.clone()].map(Operation::AddRule));
        assert_eq!(rules(bench, family), [shown(&all), shown(&some)]);
    }
}
