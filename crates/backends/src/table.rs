//! Table of the capabilities of all transports.

use crate::opening::Role;
use crate::registry::ALL;

/// Column headings of [`rows`].
pub const HEADER: [&str; 11] = [
    "transport",
    "receives",
    "sends",
    "complete frames",
    "links",
    "steers",
    "credits",
    "copies per byte",
    "packets per batch",
    "privileges",
    "this build",
];

/// Returns a row for each transport, in the order of the registry.
pub fn rows() -> Vec<[String; HEADER.len()]> {
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    ALL.iter()
        .map(|about| {
            let built = match (about.feature, about.missing) {
                (None, _) => "built in".into(),
                (Some(feature), None) => format!("has feature {feature}"),
                (Some(feature), Some(_)) => format!("lacks feature {feature}"),
            };
            [
                about.form(),
                "yes".into(),
                yes(about.sends),
                yes(about.sends_complete_frames),
                links(about.one_link),
                about.steers.into(),
                about.credits.into(),
                about.copies.into(),
                about.batch.into(),
                about.privileges.into(),
                built,
            ]
        })
        .collect()
}

/// Describes how many links a transport carries, given the roles in which it carries only one.
fn links(one_link: &[Role]) -> String {
    let one = one_link.iter().map(|role| match role {
        Role::Receiver => "one to receive",
        Role::Sender => "one to send",
        Role::CompleteFrames => "one for complete frames",
    });
    let one: Vec<_> = one.collect();
    if one.is_empty() { "several".into() } else { one.join(", ") }
}
