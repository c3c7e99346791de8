use super::{ByName, Checker, Code, Index, Key, Wrong, customers::stored};
use crate::{
    BuildError, Lists,
    key::{self, KeyBy},
    policy::{
        document::Entries,
        read::Step::{self, Name},
        text::KeyText,
        words,
    },
};

type Add = fn(&Lists, Option<&str>, key::Key) -> Result<(), BuildError>;

impl<'a> Checker<'a> {
    pub(super) fn lists(&mut self, by_name: &ByName<'a>) -> Option<Lists> {
        let text = self.document.lists.as_ref()?;
        let lists = match self.document.proxies {
            Some(_) => Lists::by(self.client.clone()),
            None => Lists::new(),
        };
        let allow: Add = |lists, rule, key| match rule {
            Some(rule) => lists.allow_for(rule, key).map(|_| ()),
            None => lists.allow(key).map(|_| ()),
        };
        let deny: Add = |lists, rule, key| match rule {
            Some(rule) => lists.deny_for(rule, key).map(|_| ()),
            None => lists.deny(key).map(|_| ()),
        };
        for (field, entries, add) in [("allow", &text.allow, allow), ("deny", &text.deny, deny)] {
            self.nets(&lists, field, entries);
            self.keys(&lists, field, entries, add);
            for (rule, keys) in &entries.rules {
                self.keys_of_rule(&lists, field, rule, keys, by_name, add);
            }
        }
        Some(lists)
    }

    fn nets(&mut self, lists: &Lists, field: &str, entries: &Entries) {
        for (place, net) in entries.nets.iter().enumerate() {
            let added = if field == "allow" { lists.allow_net(net) } else { lists.deny_net(net) };
            if let Err(error) = added {
                let path = [Key("lists"), Key(field), Key("nets"), Index(place)];
                self.told.tell(Code::Lists, &format!("lists: {field}.nets"), words::split(error.text()), &path);
            }
        }
    }

    fn keys(&mut self, lists: &Lists, field: &str, entries: &Entries, add: Add) {
        // Keys of any rule: all that is known of them is that they are keys.
        let key = KeyText { by: KeyBy::new(|_| ""), hashed: false, address: false, alternatives: false };
        for (place, text) in entries.keys.iter().enumerate() {
            let path = [Key("lists"), Key(field), Key("keys"), Index(place)];
            self.add(lists, None, text, &key, add, &format!("lists: {field}.keys"), &path);
        }
    }

    fn keys_of_rule(
        &mut self,
        lists: &Lists,
        field: &str,
        rule: &str,
        keys: &[String],
        by_name: &ByName<'a>,
        add: Add,
    ) {
        let document = self.document;
        let whose = format!("lists: {field}.rules");
        let path = [Key("lists"), Key(field), Key("rules"), Name(rule)];
        let Some(text) = by_name.get(rule).and_then(|place| document.rules.get(*place)) else {
            return self.unknown_rule(&whose, rule, &path);
        };
        let [part] = text.key.as_slice() else {
            let help = "lists know keys of one part; write a rule by that part, as a shadow if it is only for the list";
            let wrong = Wrong::new(format!("the keys of {rule:?} have several parts"), help);
            return self.told.tell(Code::Lists, &whose, wrong, &path);
        };
        // What is wrong with the rule's key is told already.
        let Ok(key) = self.keys.read(part) else { return };
        for (place, text) in keys.iter().enumerate() {
            let path = [Key("lists"), Key(field), Key("rules"), Key(rule), Index(place)];
            self.add(lists, Some(rule), text, &key, add, &whose, &path);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        lists: &Lists,
        rule: Option<&str>,
        text: &str,
        key: &KeyText,
        add: Add,
        whose: &str,
        path: &[Step<'_>],
    ) {
        let added = match stored(text, key, self.ipv6_prefix()) {
            Ok(stored) => {
                add(lists, rule, key::Key::stored(stored)).map_err(|error| (Code::Lists, words::split(error.text())))
            }
            Err(wrong) => Err(wrong),
        };
        if let Err((code, wrong)) = added {
            self.told.tell(code, whose, wrong, path);
        }
    }
}
