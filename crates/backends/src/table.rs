//! What every transport can do, as a table.

use crate::registry::ALL;

/// What the columns of [`rows`] are.
pub const HEADER: [&str; 10] = [
    "transport",
    "receives",
    "sends",
    "whole frames",
    "steers",
    "credits",
    "copies per byte",
    "packets at once",
    "privileges",
    "this build",
];

/// A row for each transport, in the order of the registry.
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
                yes(about.sends_whole_frames),
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
