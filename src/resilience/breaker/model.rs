//! A breaker under whatever may happen to it, against its rules written down once more.

use proptest::prelude::*;

use super::*;

const SETTINGS: Settings = Settings {
    failures: 3,
    within: Duration::from_secs(10),
    open_for: Duration::from_secs(30),
    deadline: Duration::ZERO,
};

/// One of those who ask, at any time and in any order, and come back with an answer, with none, or not at all.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ask(Asked),
    Answer(usize),
    Fail(usize),
    Leave(usize),
    Nudge,
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let whose = || 0..8usize;
    let step = prop_oneof![
        2 => (0..4_000u64).prop_map(Step::Pass),
        1 => (20_000..40_000u64).prop_map(Step::Pass),
        3 => Just(Step::Ask(Asked::Change)),
        3 => Just(Step::Ask(Asked::LookUp)),
        2 => whose().prop_map(Step::Answer),
        6 => whose().prop_map(Step::Fail),
        1 => whose().prop_map(Step::Leave),
        1 => Just(Step::Nudge),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 0..100)
}

/// What a breaker has been through, from which the rules say what it must do.
#[derive(Debug)]
enum Model {
    /// The times of all failures since the last success.
    Closed(Vec<Instant>),
    /// Not asked before the first, asked by one from the second on.
    Open(Instant, Instant),
    Probed,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_in_whatever_order_it_keeps_its_rules(steps in steps()) {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        let mut asking: Vec<(Pass, Asked, Instant)> = Vec::new();
        let mut model = Model::Closed(Vec::new());
        let opened = |now: Instant| Model::Open(now + SETTINGS.open_for, now + SETTINGS.open_for.mul_f64(1.1));
        // Whether any of the failures was one of a charge: then answers to look-ups mend nothing.
        let mut charges = false;
        // How many kinds of unease were told of and not taken back: what spares requests a look at each breaker.
        let mut uneasy = 0;
        for step in steps {
            let who = |whose: usize| (!asking.is_empty()).then(|| whose % asking.len());
            let change = match step {
                Step::Pass(millis) => {
                    now += Duration::from_millis(millis);
                    Change::None
                }
                Step::Ask(asked) => {
                    let pass = breaker.pass(now);
                    match model {
                        Model::Closed(_) => prop_assert_eq!(pass, Pass::Free),
                        Model::Probed => prop_assert!(matches!(pass, Pass::Blocked(_)), "two probe at once"),
                        Model::Open(from, by) => match pass {
                            Pass::Probe => {
                                prop_assert!(now >= from, "too early");
                                model = Model::Probed;
                            }
                            pass => prop_assert!(matches!(pass, Pass::Blocked(_)) && now < by, "{:?}", pass),
                        },
                    }
                    if !matches!(pass, Pass::Blocked(_)) {
                        asking.push((pass, asked, now));
                    }
                    Change::None
                }
                Step::Answer(whose) => {
                    let Some(who) = who(whose) else { continue };
                    let (pass, asked, _) = asking.swap_remove(who);
                    let change = breaker.succeeded(pass, asked, now);
                    let mends = asked == Asked::Change || !charges;
                    match &model {
                        Model::Closed(_) if mends => model = Model::Closed(Vec::new()),
                        Model::Probed if pass == Pass::Probe && mends => {
                            prop_assert_eq!(change, Change::Closed);
                            model = Model::Closed(Vec::new());
                        }
                        Model::Probed if pass == Pass::Probe => {
                            prop_assert_eq!(change, Change::None);
                            model = Model::Open(now, now);
                        }
                        _ => prop_assert_eq!(change, Change::None),
                    }
                    change
                }
                Step::Fail(whose) => {
                    let Some(who) = who(whose) else { continue };
                    let (pass, asked, began) = asking.swap_remove(who);
                    let change = breaker.failed(pass, asked, began, now, &SETTINGS);
                    let counts = matches!(model, Model::Closed(_)) || pass == Pass::Probe;
                    charges |= counts && asked == Asked::Change;
                    match &mut model {
                        Model::Closed(failures) => {
                            // Those that were on their way together are one failure.
                            if failures.last().is_none_or(|last| began >= *last) {
                                failures.push(now);
                            }
                            let recent = failures.iter().filter(|at| now - **at <= SETTINGS.within).count();
                            let opens = recent >= 3 && failures.last() == Some(&now) && began >= failures[failures.len() - 2];
                            prop_assert_eq!(change == Change::Opened, opens);
                            if opens {
                                model = opened(now);
                            }
                        }
                        Model::Probed if pass == Pass::Probe => model = opened(now),
                        _ => prop_assert_eq!(change, Change::None),
                    }
                    change
                }
                Step::Leave(whose) => {
                    let Some(who) = who(whose) else { continue };
                    let (pass, ..) = asking.swap_remove(who);
                    if pass == Pass::Probe {
                        breaker.abandoned(now);
                        model = Model::Open(now, now);
                    }
                    Change::None
                }
                Step::Nudge => {
                    breaker.nudge(now);
                    if let Model::Open(from, by) = &mut model {
                        (*from, *by) = (now.min(*from), now.min(*by));
                    }
                    Change::None
                }
                Step::Forget => {
                    let change = breaker.forget(now, &SETTINGS);
                    match &model {
                        Model::Closed(failures) => {
                            let old = failures.last().is_some_and(|last| now - *last > SETTINGS.within);
                            prop_assert_eq!(change == Change::Calm, old);
                        }
                        Model::Open(from, by) => {
                            prop_assert!(change == Change::None || now - *from > SETTINGS.open_for);
                            prop_assert!(change == Change::Closed || now <= *by + SETTINGS.open_for);
                        }
                        Model::Probed => prop_assert_eq!(change, Change::None, "somebody is about to tell"),
                    }
                    if change != Change::None {
                        model = Model::Closed(Vec::new());
                    }
                    change
                }
            };
            uneasy += match change {
                Change::Uneasy => 1,
                Change::Calm | Change::Closed => -1,
                Change::None | Change::Opened => 0,
            };
            let calm = matches!(&model, Model::Closed(failures) if failures.is_empty());
            prop_assert_eq!(uneasy, i32::from(!calm));
            charges &= !calm;
        }
    }
}
