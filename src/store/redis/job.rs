//! What a script is called for, and the command that calls it.

use redis::Cmd;
use smallvec::SmallVec;

use super::{
    assemble::shadow_of,
    connections::Live,
    scripts::Script,
    wire::{self, Args},
};
use crate::store::{Ask, GIVE_RECORD_TTL, Id, Line, Purpose, Settlement, Tenant};

#[derive(Clone, Copy)]
pub(super) enum Job<'a> {
    Ask(&'a Ask<'a>),
    Settle(&'a [&'a Settlement<'a>]),
}

impl Job<'_> {
    pub(super) fn is_peek(&self) -> bool {
        matches!(self, Job::Ask(ask) if ask.purpose == Purpose::Peek)
    }

    /// Whether nobody waits for it, so that it may as well go out whole the first time: a second turn would put it behind those who
    /// ask next.
    pub(super) fn goes_out_whole(&self) -> bool {
        match self {
            Job::Ask(ask) => matches!(ask.purpose, Purpose::Give(_)),
            Job::Settle(_) => true,
        }
    }

    fn command(&self, verb: &str, script: &str, args: &Args) -> Cmd {
        let count = match self {
            Job::Ask(ask) => ask.lines.len() + tenants(ask.lines.iter(), ask.purpose).count(),
            Job::Settle(settlements) => 2 * settlements.len() + tenants_of(settlements).count(),
        };
        let mut command = Cmd::with_capacity(4 + count, script.len() + args.as_bytes().len() + 64 * count + 16);
        command.arg(verb).arg(script);
        match self {
            Job::Ask(ask) => match ask.purpose.id() {
                None => {
                    command.arg(count);
                    names(&mut command, ask.lines);
                    names_of_tenants(&mut command, tenants(ask.lines.iter(), ask.purpose));
                    command.arg(args.as_bytes());
                    if let Some(shadow) = shadow_of(ask.lines).filter(|_| ask.purpose.decides()) {
                        command.arg(shadow);
                    }
                }
                Some(id) => {
                    command.arg(count + 1);
                    names(&mut command, ask.lines);
                    names_of_tenants(&mut command, tenants(ask.lines.iter(), ask.purpose));
                    let record = ask.lines.first().map(|line| record_name(line, id)).unwrap_or_default();
                    command.arg(record).arg(args.as_bytes()).arg(wire::record_millis(ask.purpose));
                }
            },
            Job::Settle(settlements) => {
                command.arg(count);
                settlements.iter().for_each(|settlement| names(&mut command, &[settlement.line]));
                for settlement in *settlements {
                    command.arg(record_name(&settlement.line, settlement.id));
                }
                names_of_tenants(&mut command, tenants_of(settlements));
                command.arg(args.as_bytes()).arg(GIVE_RECORD_TTL.as_millis() as u64);
            }
        }
        command
    }
}

/// One call of a script.
pub(super) struct Call<'a> {
    pub(super) live: &'a mut Live,
    pub(super) script: &'a Script,
    pub(super) job: Job<'a>,
    pub(super) args: &'a Args,
}

impl Call<'_> {
    /// The command, by which `verb` finds the script under this name or text.
    pub(super) fn command(&self, verb: &str, script: &str) -> Cmd {
        self.job.command(verb, script, self.args)
    }
}

/// The name of the record of a change, `namespace:v1:{key}#id`: in the slot of its line, and never that of a count, where a
/// colon follows the brace.
fn record_name(line: &Line<'_>, id: Id) -> Vec<u8> {
    let [before, key, _] = line.name();
    [before, key, format!("}}#{:032x}", id.bits()).as_bytes()].concat()
}

/// The tenants that an ask of these lines has to do with.
fn tenants<'a>(lines: impl Iterator<Item = &'a Line<'a>>, purpose: Purpose) -> impl Iterator<Item = &'a Tenant> {
    lines.filter(move |line| line.of_tenant(purpose).is_some()).filter_map(|line| line.tenant)
}

fn tenants_of<'a>(settlements: &'a [&'a Settlement<'a>]) -> impl Iterator<Item = &'a Tenant> {
    let shared = settlements.iter().filter(|one| one.line.of_tenant(one.purpose()).is_some());
    shared.filter_map(|one| one.line.tenant)
}

fn names_of_tenants<'a>(command: &mut Cmd, tenants: impl Iterator<Item = &'a Tenant>) {
    for tenant in tenants {
        command.arg(tenant.name().concat());
    }
}

/// Adds the name of each line's count.
pub(super) fn names(command: &mut Cmd, lines: &[Line<'_>]) {
    let mut name = SmallVec::<[u8; 64]>::new();
    for line in lines {
        name.clear();
        for piece in line.name() {
            name.extend_from_slice(piece);
        }
        command.arg(&*name);
    }
}
