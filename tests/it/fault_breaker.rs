//! Breakers before real servers: while they are open nobody waits and next to nothing is sent, and they close again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluicegate::{Call, Limiter, MemoryStore, OnFailure, Quota, RedisStore, Resilient, Rule, StoreErrorKind, key};

use crate::support::{
    checker::Checker,
    fault_proxy::{Counts, FaultProxy, Way},
    faulted::{DEADLINE, Faulted, GRAIN, OPEN},
    load::{Load, alone, figure, part, warm},
    server::{Server, Version},
    stores::namespace,
};

/// What breakers add to the time they are open, so that they do not all close together.
const JITTER: Duration = Duration::from_millis(100);

/// The stream until the breaker is open.
async fn until_open(load: &Load) {
    let since = Instant::now();
    loop {
        let phase = load.run(Duration::from_millis(10)).await;
        phase.is_within(DEADLINE + GRAIN);
        if phase.samples.last().is_some_and(|sample| sample.failure == Some(StoreErrorKind::Open)) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(1), "the breaker does not open");
    }
}

/// Recovery is within a second of the end of the fault, and of the time that the breaker is still open.
async fn open_and_closed(mut faulted: Faulted, heal: impl FnOnce(&mut Faulted)) {
    let hung = Instant::now();
    until_open(&faulted.load).await;
    let counts = &faulted.proxy.counts;
    let (commands, bytes) = (Counts::of(&counts.commands), Counts::of(&counts.bytes_up));
    let connections = Counts::of(&counts.connections);
    let length = part(Duration::from_millis(1_500));
    // Beside it, at the same time and on the same thread, decisions that have no store to lose.
    let (checker, limiter) = Checker::of_few(Limiter::builder(MemoryStore::new()));
    let beside = Load::new(checker, limiter);
    let (during, beside) = tokio::join!(faulted.load.run(length), beside.run(length));
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len());
    // All but the probes, and those that found one under way, are answered at once.
    let late = during.samples.iter().filter(|sample| sample.failure != Some(StoreErrorKind::Open)).count() as u64;
    let probes = length.as_secs() + 1;
    assert!(late <= probes, "{late} of {} asked the store", during.samples.len());
    let [open, without] = [&during, &beside].map(|phase| phase.percentile(99));
    figure("99 of 100 in memory within", without);
    assert!(open <= without + Duration::from_micros(200), "99 of 100 within {open:?}, in memory within {without:?}");
    // What reaches the socket are probes, and a connection's few words of greeting.
    let (sent, made) = (Counts::of(&counts.commands) - commands, Counts::of(&counts.connections) - connections);
    assert!(made <= probes, "{made} connections");
    assert!(sent <= probes * 4, "{sent} commands, {} bytes", Counts::of(&counts.bytes_up) - bytes);
    heal(&mut faulted);
    let healed = Instant::now();
    let recovery = faulted.load.recovery(healed, Duration::from_secs(20)).await;
    assert!(recovery <= OPEN + JITTER + Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    let early = healed - DEADLINE - GRAIN;
    let checker = Arc::clone(&faulted.load.checker);
    checker.check_against(&mut [faulted.direct.clone()], |_, record| !(hung..early).contains(&record.sent)).await;
    faulted.is_over().await;
}

#[tokio::test]
async fn a_hung_server() {
    let faulted = Faulted::resilient().await;
    faulted.server.signal("STOP");
    open_and_closed(faulted, |faulted| faulted.server.signal("CONT")).await;
}

/// An attempt to connect that was under way must end first, the next may take longer than a probe waits for it, and the probe
/// after that finds a connection.
#[tokio::test]
async fn a_half_open_connection() {
    let faulted = Faulted::resilient().await;
    faulted.proxy.set(|faults| (faults.to_server, faults.to_client) = (Way::Lost, Way::Lost));
    open_and_closed(faulted, |faulted| faulted.proxy.heal()).await;
}

#[tokio::test]
async fn connections_refused() {
    let faulted = Faulted::resilient().await;
    faulted.proxy.set(|faults| faults.refuse = true);
    faulted.proxy.reset();
    open_and_closed(faulted, |faulted| faulted.proxy.heal()).await;
}

/// Fifty processes' worth of breakers before one server that hangs: no more than a probe each in a period.
#[tokio::test]
async fn many_instances_do_not_storm_the_server() {
    let _alone = alone().await;
    let server = Server::start(Version::Redis7);
    let proxy = FaultProxy::start(server.port, 1);
    let rule = || Rule::gcra("checked", Quota::per_hour(1_000)).key(key::given());
    let limiters: Vec<Limiter> = (0..50)
        .map(|_| {
            let store = RedisStore::builder(proxy.url()).bare().build().expect("sound");
            let builder = Limiter::builder(Resilient::new(store).open_for(OPEN));
            builder.namespace(namespace()).on_failure(OnFailure::Allow).rule(rule()).build().expect("sound")
        })
        .collect();
    for limiter in &limiters {
        warm(limiter).await;
    }
    server.signal("STOP");
    let ask = async |limiter: &Limiter| limiter.acquire([("checked", "k")]).await.failure().map(|error| error.kind());
    for limiter in &limiters {
        while ask(limiter).await != Some(StoreErrorKind::Open) {}
    }
    let (began, connections) = (Instant::now(), Counts::of(&proxy.counts.connections));
    let mut probes = 0;
    while began.elapsed() < OPEN * 2 {
        for limiter in &limiters {
            probes += u64::from(ask(limiter).await != Some(StoreErrorKind::Open));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let periods = began.elapsed().as_secs() + 1;
    assert!(probes >= 50, "{probes} probes");
    assert!(probes <= 50 * periods, "{probes} probes in {periods} periods");
    let made = Counts::of(&proxy.counts.connections) - connections;
    assert!(made <= 50 * periods, "{made} connections in {periods} periods");
    server.signal("CONT");
}

/// How a server is brought down.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Gone,
    /// Of memory, and evicts nothing.
    Full,
    Hung,
}

/// An attacker who brings the server down gets no more than the quota: what all instances admit by themselves is their share.
#[tokio::test]
async fn an_outage_admits_no_more_than_its_bound() {
    let _alone = alone().await;
    for outage in [Outage::Gone, Outage::Full, Outage::Hung] {
        let server = Server::start(Version::Redis7);
        let quota = Quota::per_hour(1_000);
        let rules = [
            Rule::fixed_window("checked", quota).from_first_request().on_failure(OnFailure::Local),
            Rule::gcra("login", quota).on_failure(OnFailure::Refuse),
            Rule::gcra("open", quota).on_failure(OnFailure::Allow),
        ];
        let limiters: Vec<Limiter> = (0..4)
            .map(|_| {
                let store = RedisStore::builder(server.url()).bare().build().expect("sound");
                let builder = Limiter::builder(Resilient::new(store).open_for(OPEN).instances(4)).namespace("ns");
                let rules = rules.clone().map(|rule| rule.key(key::given()));
                rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound")
            })
            .collect();
        for limiter in &limiters {
            warm(limiter).await;
        }
        match outage {
            Outage::Gone => {
                server.signal("KILL");
                for limiter in &limiters {
                    while limiter.peek(Call::new().key("open", "other")).await.failure().is_none() {}
                }
            }
            Outage::Full => {
                let mut connection = server.connection().await;
                let mut full = redis::cmd("CONFIG");
                let _: () = full.arg("SET").arg("maxmemory").arg("1").query_async(&mut connection).await.expect("set");
            }
            Outage::Hung => server.signal("STOP"),
        }
        let mut admitted = [0; 3];
        for limiter in &limiters {
            for _ in 0..400 {
                for (place, rule) in ["checked", "login", "open"].into_iter().enumerate() {
                    let decision = limiter.acquire(Call::new().key(rule, "k")).await;
                    assert!(decision.failure().is_some(), "nobody answers");
                    admitted[place] += u32::from(decision.is_allowed());
                }
            }
        }
        assert_eq!(admitted, [800, 0, 1_600], "{outage:?}: four fifths of the quota, nothing, and everything");
    }
}
