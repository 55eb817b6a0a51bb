//! Host names: valid, readable and injective for any tenant names.

mod support;

use proptest::prelude::*;
use sublet_syncer::translate::{NAME_BYTES_MAX_LABEL, NAME_BYTES_MAX_POD, NAME_BYTES_MAX_SUBDOMAIN, TenantKey, host_meta_key, label_value};
use support::names;

fn label() -> impl Strategy<Value = String> {
    // Few letters and many dashes, so that joins and cuts collide if they can.
    "[ab]([ab-]{0,61}[ab])?"
}

fn subdomain() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]([ab-]{0,40}[ab])?", 1..6).prop_map(|parts| parts.join("."))
}

fn is_valid(name: &str, bytes_max: usize, dots: bool) -> bool {
    let part = |part: &str| {
        let ends = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = part.as_bytes();
        !bytes.is_empty() && ends(bytes[0]) && ends(bytes[bytes.len() - 1]) && bytes.iter().all(|b| ends(*b) || *b == b'-')
    };
    name.len() <= bytes_max && if dots { name.split('.').all(part) } else { part(name) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn names_are_valid_for_their_kind(namespace in label(), name in label(), long in subdomain()) {
        let names = names();
        let service = names.host_name(&namespace, &name, NAME_BYTES_MAX_LABEL);
        prop_assert!(is_valid(&service, 63, false), "{service}");
        for bytes_max in [NAME_BYTES_MAX_POD, NAME_BYTES_MAX_SUBDOMAIN] {
            let host = names.host_name(&namespace, &long, bytes_max);
            prop_assert!(is_valid(&host, bytes_max, true), "{host}");
        }
        let derived = names.derived_name("token", &TenantKey::new(&*namespace, &*long), NAME_BYTES_MAX_SUBDOMAIN);
        prop_assert!(is_valid(&derived, 253, true), "{derived}");
    }

    #[test]
    fn different_objects_have_different_names(a in (label(), label()), b in (label(), label())) {
        let names = names();
        let name = |(namespace, name): &(String, String)| names.host_name(namespace, name, NAME_BYTES_MAX_LABEL);
        prop_assert_eq!(a == b, name(&a) == name(&b));
        // A cut of the joined name at another place.
        let joined = format!("{}-{}", a.1, a.0);
        for (at, _) in joined.match_indices('-') {
            let other = (joined[at + 1..].to_string(), joined[..at].to_string());
            prop_assert_eq!(other == a, name(&other) == name(&a));
        }
    }

    #[test]
    fn short_names_stay_whole(namespace in "[a-z]{1,20}", name in "[a-z]{1,20}") {
        let host = names().host_name(&namespace, &name, NAME_BYTES_MAX_LABEL);
        let whole = format!("{name}-{namespace}-");
        prop_assert!(host.starts_with(&whole), "{}", host);
    }

    #[test]
    fn label_values_are_valid_and_apart(a in subdomain(), b in subdomain()) {
        prop_assert!(is_valid(&label_value(&a), 63, true));
        prop_assert_eq!(a == b, label_value(&a) == label_value(&b));
    }

    #[test]
    fn label_keys_stay_apart_at_every_depth(a in "(n\\.){0,3}(sublet\\.dev|x\\.sublet\\.dev|app)(/[a-c])?", b in "(n\\.){0,3}(sublet\\.dev|x\\.sublet\\.dev|app)(/[a-c])?") {
        prop_assert_eq!(a == b, host_meta_key(&a) == host_meta_key(&b));
    }
}
