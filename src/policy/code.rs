/// What kind of problem it is. Codes never change their meaning, and none is used again.
macro_rules! codes {
    ($($name:ident = $code:literal, $meaning:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Code {
            $(#[doc = $meaning] $name,)+
        }

        impl Code {
            pub(super) fn text(self) -> &'static str {
                match self {
                    $(Code::$name => $code,)+
                }
            }

            #[cfg(test)]
            pub(super) const ALL: &'static [(&'static str, &'static str)] = &[$(($code, $meaning),)+];
        }
    };
}

codes! {
    Syntax = "SG001", "The text is no TOML or JSON";
    UnknownField = "SG002", "A field that there is not";
    Type = "SG003", "A value of another kind than the field takes";
    Missing = "SG004", "A field that must be there is not";
    Twice = "SG005", "A name stands twice";
    UnknownChoice = "SG006", "None of the words that a field takes";
    UnknownRule = "SG007", "No rule has this name";
    UnknownTier = "SG008", "No tier has this name";
    UnknownName = "SG009", "Nothing that code registers has this name";
    Quota = "SG010", "A text that is no quota";
    Time = "SG011", "A text that is no time, or no offset from UTC";
    Impossible = "SG012", "A quota, burst or limit that cannot be kept";
    Field = "SG013", "Another field of a rule that cannot be";
    Key = "SG014", "A text that is no key";
    Path = "SG015", "A text that is no pattern of paths";
    Method = "SG016", "A text that is no method";
    Condition = "SG017", "A text that is no condition, or no status";
    Nowhere = "SG018", "A rule that applies to no request";
    Unlimited = "SG019", "A rule that limits nobody";
    NoQuota = "SG020", "A rule without a quota";
    Redundant = "SG021", "A rule that another makes superfluous";
    Tiers = "SG022", "Tiers that no request is in";
    Overrides = "SG023", "Overrides for nobody";
    TooMany = "SG024", "Too many rules for one request";
    Proxies = "SG025", "Proxies that cannot be trusted so";
    Lists = "SG026", "An entry of a list that cannot be";
    Headers = "SG027", "Response headers that cannot be written together";
    NoRules = "SG028", "A policy without rules";
    Secret = "SG029", "A key of a secret that is not written as its digest";
    File = "SG030", "A file that cannot be read";
    Unusable = "SG031", "A policy that this limiter cannot take";
}
