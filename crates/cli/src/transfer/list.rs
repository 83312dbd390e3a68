//! List of a target's regions.

use crate::Result;
use crate::output::{Report, columns, print_report};
use crate::values::Size;
use shotline_verbs::cm::message::Regions;
use shotline_verbs::connect::{Target, open_control};

#[derive(serde::Serialize)]
#[serde(transparent)]
struct List(Regions);

impl Report for List {
    fn print(&self) -> Result {
        let rows = self.0.regions.iter().map(|region| {
            let rights = String::from(region.rights);
            [region.name.to_string(), Size(region.bytes).to_string(), rights]
        });
        columns(&["region", ">size", "rights"], &rows.collect::<Vec<_>>());
        Ok(())
    }
}

/// Prints the regions. They have no traffic, so any transport will do.
pub fn print(json: bool, target: &Target) -> Result {
    let mut client = open_control(target, None)?;
    let list = List(client.regions()?);
    client.goodbye()?;
    print_report(json, &list)
}
