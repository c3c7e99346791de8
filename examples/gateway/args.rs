use std::{fmt, path::PathBuf, time::Duration};

use http::{Uri, uri::Authority};

pub(super) const HELP: &str = "\
A reverse proxy that enforces a policy file, and follows it when it changes.

  gateway --config FILE [--upstream URL] [--listen ADDR] [--admin ADDR]
          [--memory | --redis URL | --redis-cluster URL,URL,..]

  --config FILE         the policy, .toml or .json: see examples/gateway.toml
  --upstream URL        where admitted requests go: http://HOST:PORT, or h2c://HOST:PORT for HTTP/2 without TLS (gRPC).
                        Without one the gateway answers by itself, and shows what was decided
  --listen ADDR         where clients come in, HTTP/1.1 and h2c [127.0.0.1:8080]
  --admin ADDR          where operators ask; never reachable through --listen [127.0.0.1:9090]
                          /-/policy   the policy in force, its version, and what is wrong with the newest if it is refused
                          /-/usage    how much is left for a request with the same headers and address as this one
                          /-/healthz  ok, degraded with the reasons, or (with 503) draining

  --memory              count in this process: the default
  --redis URL           count on Redis or Valkey, together with all gateways of this namespace; or the variable REDIS_URL,
                        which keeps a password out of the list of processes
  --redis-cluster URLS  the same on a Cluster: some of its nodes, with commas between them
  --namespace NAME      whose counts these are [gateway]
  --instances N         how many gateways there are: each admits that share while Redis does not answer [1]
  --deadline SECONDS    how long a request may wait for Redis before it is judged without it [0.01]

  --timeout SECONDS     how long the upstream may take to begin its answer, before a 504 [30]
  --drain SECONDS       how long requests and sockets at work may take to end after SIGINT or SIGTERM [10]
  --help                this text

Port 0 takes a free one. Requests get X-Forwarded-For, -Proto and -Host. What callers sent in these is dropped, unless the policy has
[proxies]: then a proxy stands in front, its list is continued, and its -Proto and -Host stay.

Keys that need a router or code are refused, since no request would have them: route, path_param:NAME, claim:NAME, given. A rule for
each pattern of paths does what route does.
";

/// What the gateway was told.
pub(super) struct Args {
    pub(super) config: PathBuf,
    pub(super) counts: Counts,
    pub(super) namespace: String,
    pub(super) instances: u32,
    pub(super) deadline: Duration,
    pub(super) listen: String,
    pub(super) admin: String,
    pub(super) upstream: Option<Upstream>,
    pub(super) timeout: Duration,
    pub(super) drain: Duration,
}

pub(super) enum Wanted {
    Help,
    Run(Box<Args>),
}

/// Where it counts.
#[derive(Debug, PartialEq)]
pub(super) enum Counts {
    Memory,
    Redis(String),
    Cluster(Vec<String>),
}

/// Without addresses: they may hold a password.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counts::Memory => "in memory",
            Counts::Redis(_) => "on Redis",
            Counts::Cluster(_) => "on a Redis Cluster",
        })
    }
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) authority: Authority,
    pub(super) http2: bool,
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.http2 { "h2c" } else { "http" }, self.authority)
    }
}

impl Args {
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Wanted, String> {
        let mut config = None;
        let mut counts = None;
        let mut args = Args {
            config: PathBuf::new(),
            counts: std::env::var("REDIS_URL").map_or(Counts::Memory, Counts::Redis),
            namespace: "gateway".into(),
            instances: 1,
            deadline: Duration::from_millis(10),
            listen: "127.0.0.1:8080".into(),
            admin: "127.0.0.1:9090".into(),
            upstream: None,
            timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, given) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let mut value = || {
                let value = given.clone().or_else(|| arguments.next().filter(|next| !next.starts_with("--")));
                value.filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} needs a value"))
            };
            let mut count = |chosen| match counts.replace(chosen) {
                None => Ok(()),
                Some(_) => Err("give one of --memory, --redis and --redis-cluster"),
            };
            match name {
                "--help" | "-h" => return Ok(Wanted::Help),
                "--config" => config = Some(PathBuf::from(value()?)),
                "--memory" => count(Counts::Memory)?,
                "--redis" => count(Counts::Redis(value()?))?,
                "--redis-cluster" => count(Counts::Cluster(value()?.split(',').map(str::to_owned).collect()))?,
                "--namespace" => args.namespace = value()?,
                "--instances" => args.instances = number(name, &value()?)?,
                "--deadline" => args.deadline = seconds(name, &value()?)?,
                "--listen" => args.listen = value()?,
                "--admin" => args.admin = value()?,
                "--upstream" => args.upstream = Some(upstream(&value()?)?),
                "--timeout" => args.timeout = seconds(name, &value()?)?,
                "--drain" => args.drain = seconds(name, &value()?)?,
                _ => return Err(format!("there is no argument {name:?}")),
            }
        }
        args.config = config.ok_or("--config is missing: the policy file, such as examples/gateway.toml")?;
        args.counts = counts.unwrap_or(args.counts);
        if args.listen == args.admin && !args.listen.ends_with(":0") {
            return Err("--admin and --listen must differ: clients must not reach what is for operators".into());
        }
        Ok(Wanted::Run(Box::new(args)))
    }
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{name}: {text:?} is no number from 1 on"))
}

fn seconds(name: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("{name}: {text:?} is no number of seconds, such as 30 or 0.5");
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(wrong)
}

fn upstream(text: &str) -> Result<Upstream, String> {
    let wrong = |what: &str| format!("--upstream: {text:?} {what}, such as http://127.0.0.1:3000");
    let uri: Uri = text.parse().map_err(|_| wrong("is no address"))?;
    let http2 = match uri.scheme_str() {
        Some("http") => false,
        Some("h2c") => true,
        Some("https") => return Err(wrong("needs TLS, which this gateway does not speak: give the address behind it")),
        _ => return Err(wrong("does not begin with http:// or h2c://")),
    };
    if !matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("/")) {
        return Err(wrong("has a path: requests keep their own. Give scheme, host and port alone"));
    }
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    Ok(Upstream { authority: authority.ok_or_else(|| wrong("is no host and port"))?.clone(), http2 })
}
