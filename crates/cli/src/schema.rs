//! `shotline schema`: prints the JSON Schema of the files that users write.

use crate::Result;
use serde_json::Value;

/// Folder of the schemas on the web; their files are those of `docs/schemas`.
const FOLDER: &str = "https://raw.githubusercontent.com/shotline/shotline/main/docs/schemas";

/// Arguments of `shotline schema`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline schema settings > settings.json         of the file of shotline record --config
  shotline schema plan --json | jq '.properties | keys'

An editor with Taplo (\"Even Better TOML\") completes and checks a file whose first line is
  #:schema ./settings.json
The files that shotline init writes have such a line.")]
pub struct Args {
    /// Which file the schema describes
    #[arg(value_enum)]
    what: Format,
    /// Print it as one line
    #[arg(long)]
    json: bool,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Settings of `shotline record --config`
    Settings,
    /// Plans of `shotline plan`
    Plan,
}

impl Format {
    /// Returns the address of the schema on the web.
    pub fn url(self) -> String {
        match self {
            Self::Settings => format!("{FOLDER}/settings.json"),
            Self::Plan => format!("{FOLDER}/plan.json"),
        }
    }

    fn schema(self) -> Value {
        let mut schema = match self {
            Self::Settings => shotline_acquire::config::schema(),
            Self::Plan => shotline_plan::schema(),
        };
        schema["$id"] = self.url().into();
        // Independent of the features of serde_json in this build.
        schema.sort_all_objects();
        schema
    }
}

/// Prints a schema.
pub fn run(args: &Args) -> Result {
    let schema = args.what.schema();
    outln!("{}", if args.json { serde_json::to_string(&schema)? } else { serde_json::to_string_pretty(&schema)? });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_testing::assert_committed;
    use std::path::Path;

    #[test]
    fn schemas_are_those_of_the_documentation() {
        for format in [Format::Settings, Format::Plan] {
            let url = format.url();
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(&url[FOLDER.len() + 1..]);
            let text = serde_json::to_string_pretty(&format.schema()).unwrap() + "\n";
            assert_committed(&path, text.as_bytes());
        }
    }
}
