use std::net::IpAddr;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use http::{HeaderName, HeaderValue, Method};
use sluicegate::policy;

/// Looks at policies of sluicegate: limits as data, in TOML or JSON.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, propagate_version = true)]
#[command(after_help = "\
Exit codes: 0 all is well, 1 the policy has problems, 2 wrong use or a file that cannot be read

Examples:
  sluicegate check limits.toml
  sluicegate explain limits.toml --method POST --path /v1/charges --tier pro
  sluicegate schema > policy.schema.json")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Says what is wrong with policies, or shows their rules
    #[command(after_help = "\
Examples:
  sluicegate check limits.toml
  sluicegate check limits.toml --name user,plan      # names that your application registers
  sluicegate check --quiet policies/*.toml           # for CI: problems and the exit code only
  kubectl get cm limits -o jsonpath='{.data.toml}' | sluicegate check -")]
    Check(Check),
    /// Shows which rules apply to a request, with which keys and quotas, and why others do not
    #[command(after_help = "\
Examples:
  sluicegate explain limits.toml --method POST --path /v1/charges
  sluicegate explain limits.toml --path / --header 'x-api-key: k' --peer 192.0.2.1
  sluicegate explain limits.toml --path / --tier pro --customer acme
  sluicegate explain limits.toml --path / --key user=alice --claim plan=pro --condition critical

Nothing is counted and no server is asked. Keys are shown as they stand in the store: secrets as
digests, which overrides and lists name them by.")]
    Explain(Box<Explain>),
    /// Prints the JSON Schema of policies, for editors and tools
    #[command(after_help = "\
Example:
  sluicegate schema > policy.schema.json

TOML is the same tree: many editors take `#:schema ./policy.schema.json` as its first line.")]
    Schema,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {
    /// Files that end in .toml or .json; - is standard input
    #[arg(required = true, value_name = "POLICY")]
    pub(crate) policies: Vec<String>,
    /// Names of keys, tiers, costs and conditions that your application registers
    #[arg(long = "name", value_name = "NAME", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// The format, where the file's name does not tell; standard input is TOML
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Prints problems only
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Prints JSON: for each policy its problems, or its rules
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Explain {
    /// A file that ends in .toml or .json; - is standard input
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,
    /// The method of the request
    #[arg(long, value_name = "METHOD", default_value = "GET", value_parser = method)]
    pub(crate) method: Method,
    /// The path of the request
    #[arg(long, value_name = "PATH", value_parser = path)]
    pub(crate) path: http::Uri,
    /// A header of the request; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The address that the request comes from
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    /// A claim that your application has verified; may be given several times
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) claims: Vec<(String, String)>,
    /// Takes the request for one of this tier
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<String>,
    /// Takes the request for one of this customer, named as in overrides
    #[arg(long, value_name = "CUSTOMER")]
    pub(crate) customer: Option<String>,
    /// What your application finds for a key that it registers, or a router for `route`; may be given several times
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) keys: Vec<(String, String)>,
    /// What your application takes for a cost that it registers; may be given several times
    #[arg(long = "cost", value_name = "NAME=UNITS", value_parser = units)]
    pub(crate) costs: Vec<(String, u64)>,
    /// A condition that your application registers, and that holds; may be given several times
    #[arg(long = "condition", value_name = "NAME", value_delimiter = ',')]
    pub(crate) conditions: Vec<String>,
    /// The limiter's namespace, for rules that are rolled out to a share of keys
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The format, where the file's name does not tell; standard input is TOML
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Toml,
    Json,
}

impl From<Format> for policy::Format {
    fn from(format: Format) -> policy::Format {
        match format {
            Format::Toml => policy::Format::Toml,
            Format::Json => policy::Format::Json,
        }
    }
}

fn method(text: &str) -> Result<Method, String> {
    // Methods are case-sensitive, and people are not.
    Method::from_bytes(text.to_ascii_uppercase().as_bytes()).map_err(|_| "this is no method, as GET".into())
}

fn path(text: &str) -> Result<http::Uri, String> {
    if !text.starts_with('/') {
        return Err("a path begins with a slash, as /v1/charges".into());
    }
    text.parse().map_err(|_| "this is no path; what is not ASCII is percent-encoded".into())
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'x-api-key: VALUE'")?;
    let name = name.trim().parse().map_err(|_| "this is no name of a header".to_owned())?;
    let value = value.trim().parse().map_err(|_| "this is no value of a header".to_owned())?;
    Ok((name, value))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    if name.is_empty() {
        return Err("there is no name before the =".into());
    }
    Ok((name.into(), value.into()))
}

fn units(text: &str) -> Result<(String, u64), String> {
    let (name, value) = pair(text)?;
    Ok((name, value.parse().map_err(|_| "write a whole number behind the =")?))
}
