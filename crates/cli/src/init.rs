//! `shotline init`: writes a settings file for `shotline record`, in which every setting is explained.

use crate::Result;
use crate::output::{self, print_report, print_table_left};
use crate::schema::Format;
use serde::Serialize;
use shotline_acquire::config::{self, File, Key, Settings};
use shotline_wire::framing::Kind;
use shotline_wire::framing::description::{Keys, SetUp};
use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Arguments of `shotline init`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline init                                            asks, and writes shotline.toml
  shotline init --sender emulated --yes                    to try everything on this machine
  shotline init probe.toml --sender probe --address 192.168.1.20:47910 --out /data/run.h5 --yes
  shotline init array.toml --sender packets --framing spead --address 10.0.0.2:7148 --keep 400GiB --yes
  shotline record --config shotline.toml                   records with these settings

Every setting that is not chosen is in the file as a comment, with its explanation and an example. Without a terminal as
standard input nothing is asked, as with --yes.")]
pub struct Args {
    /// Settings file to write
    #[arg(default_value = "shotline.toml")]
    file: PathBuf,
    /// Which sender to record
    #[arg(long, value_enum)]
    sender: Option<Sender>,
    /// Set-up address of the probe; of other senders, the local address and port that they send to
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<String>,
    /// Framing of the packets of another sender
    #[arg(long, value_name = "NAME")]
    framing: Option<String>,
    /// File to record to
    #[arg(long, short, value_name = "FILE")]
    out: Option<String>,
    /// Seconds to record [default: until Ctrl-C]
    #[arg(long, value_name = "S")]
    seconds: Option<String>,
    /// Maximum size of the recording, of which the oldest files are deleted, such as 400GiB [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    keep: Option<String>,
    /// Ask nothing: use the defaults for everything without a flag
    #[arg(long, short)]
    yes: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sender of the shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sender {
    /// A probe with set-up: record configures, starts and stops it
    Probe,
    /// Packets of a sender that is configured elsewhere: SPEAD, a sensor bridge, VITA 49, an FPGA
    Packets,
    /// A digitizer that sends blocks of IQ to this machine
    Digitizer,
    /// An emulated probe on this machine
    Emulated,
}

impl Sender {
    /// Returns the default address.
    fn address(self) -> &'static str {
        match self {
            Self::Probe | Self::Emulated => "[::1]:47910",
            Self::Packets => "[::1]:7148",
            Self::Digitizer => "[::1]:47920",
        }
    }
}

/// A question about one setting.
struct Question<'a> {
    key: Key,
    explanation: &'a str,
    /// Empty: the setting is not chosen by default.
    default: &'a str,
}

/// Asks for what has no flag, or uses the defaults.
struct Interview<'a> {
    /// Lines of the user; `None` if nothing is asked.
    answers: Option<&'a mut dyn BufRead>,
    say: &'a mut dyn FnMut(&str),
    /// Settings with their values in TOML.
    chosen: Vec<(Key, String)>,
}

impl Interview<'_> {
    /// Returns the next line of the user.
    fn read(&mut self) -> Result<Option<String>> {
        let Some(answers) = &mut self.answers else { return Ok(None) };
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            return Err("standard input ended before all questions were answered: use flags and --yes".into());
        }
        Ok(Some(line.trim().to_owned()))
    }

    /// Returns a value that `check` accepts: the flag's, the user's, or the default.
    fn ask<T>(
        &mut self,
        given: Option<&str>,
        (name, explanation, default): (&str, &str, &str),
        check: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        if let Some(given) = given {
            return Ok(check(given)?);
        }
        if self.answers.is_some() {
            (self.say)(&format!("\n{explanation}\n"));
        }
        loop {
            if self.answers.is_some() {
                (self.say)(&format!("{name} [{}]: ", if default.is_empty() { "none" } else { default }));
            }
            let line = self.read()?;
            match check(line.as_deref().filter(|line| !line.is_empty()).unwrap_or(default)) {
                Ok(value) => return Ok(value),
                Err(error) if line.is_some() => (self.say)(&format!("{error}\n")),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Chooses a setting.
    fn choose(&mut self, given: Option<&str>, question: &Question<'_>) -> Result<String> {
        let Question { key, explanation, default } = question;
        let check = |text: &str| match text {
            "" => Ok(String::new()),
            text => config::toml_value(*key, text),
        };
        let value = self.ask(given, (key.name(), explanation, default), check)?;
        if !value.is_empty() {
            self.chosen.push((*key, value.clone()));
        }
        Ok(value)
    }

    fn sender(&mut self, given: Option<Sender>) -> Result<Sender> {
        use clap::ValueEnum as _;
        let lines = Sender::value_variants().iter().filter_map(|sender| {
            let value = sender.to_possible_value()?;
            Some(format!("\n  {:10} {}", value.get_name(), value.get_help()?))
        });
        let explanation = format!("Which sender do you record?{}", lines.collect::<String>());
        let parse = |text: &str| {
            Sender::from_str(text, true)
                .map_err(|_| format!("expected probe, packets, digitizer or emulated, found {text}"))
        };
        match given {
            Some(sender) => Ok(sender),
            None => self.ask(None, ("sender", &explanation, "probe"), parse),
        }
    }

    /// Asks what the framing of another sender needs.
    fn framing(&mut self, given: Option<&str>) -> Result {
        let kinds =
            || Kind::ALL.into_iter().filter(|kind| !matches!(kind.description().set_up, SetUp::Required { .. }));
        let names: Vec<_> = kinds().map(Kind::name).collect();
        let explanation = format!("How do its packets name the shot and the position: {}?", names.join(", "));
        let parse = |text: &str| {
            let kind = kinds().find(|kind| kind.name() == text);
            kind.ok_or_else(|| format!("expected --framing {}, found {text}", names.join(", ")))
        };
        let kind = self.ask(given, ("framing", &explanation, Kind::Spead.name()), parse)?;
        self.chosen.push((Key::framing, config::toml_value(Key::framing, kind.name())?));
        if kind.description().keys == Keys::QueuePairAndQKey {
            let explanation = "Which queue pair do the packets of link 0 name as their destination?";
            self.choose(None, &Question { key: Key::queue_pair, explanation, default: Key::queue_pair.example() })?;
            let explanation = "Which queue key do they contain?";
            self.choose(None, &Question { key: Key::q_key, explanation, default: Key::q_key.example() })?;
        }
        Ok(())
    }

    /// Asks everything that has no flag.
    fn all(&mut self, args: &Args) -> Result<Sender> {
        let sender = self.sender(args.sender)?;
        let (key, explanation) = match sender {
            Sender::Probe => {
                (Key::probe, "At which address does the probe take set-up? `shotline probe discover` finds probes.")
            }
            Sender::Emulated => (Key::probe, "At which address will the emulated probe take set-up?"),
            Sender::Packets | Sender::Digitizer => {
                (Key::listen, "To which address and port of this machine does it send?")
            }
        };
        self.choose(args.address.as_deref(), &Question { key, explanation, default: sender.address() })?;
        match sender {
            Sender::Packets => self.framing(args.framing.as_deref())?,
            Sender::Digitizer => self.framing(Some(Kind::Digitizer.name()))?,
            Sender::Probe | Sender::Emulated => {
                if let Some(framing) = &args.framing {
                    return Err(
                        format!("--framing {framing} is for --sender packets: omit it, or change the sender").into()
                    );
                }
            }
        }
        let explanation = "Where are the shots recorded? A file of HDF5, or a name that ends in .pcapng.";
        self.choose(args.out.as_deref(), &Question { key: Key::out, explanation, default: "run.h5" })?;
        let explanation = "After how many seconds does a run end? Without a number it ends by Ctrl-C.";
        self.choose(args.seconds.as_deref(), &Question { key: Key::seconds, explanation, default: "" })?;
        let explanation =
            "How much is kept at most, such as 400GiB? The oldest files are deleted then. Without a size, all.";
        self.choose(args.keep.as_deref(), &Question { key: Key::keep, explanation, default: "" })?;
        Ok(sender)
    }
}

/// What was written.
#[derive(Serialize)]
struct Written {
    file: PathBuf,
    /// Chosen settings with their values in TOML.
    settings: BTreeMap<&'static str, String>,
    /// Number of settings that are comments.
    commented: usize,
    /// Commands that make sense next.
    next: Vec<String>,
}

impl output::Report for Written {
    fn print(&self) -> Result {
        outln!(
            "Wrote {}: {} settings, and {} more as comments.",
            self.file.display(),
            self.settings.len(),
            self.commented
        );
        print_table_left(
            &self.settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<Vec<_>>(),
        );
        outln!("\nNext:");
        self.next.iter().for_each(|command| outln!("  {command}"));
        Ok(())
    }
}

/// Writes a settings file.
pub fn run(args: &Args) -> Result {
    let refusal = || format!("{} exists: use another name, or --force to replace it", args.file.display());
    if args.file.exists() && !args.force {
        return Err(refusal().into());
    }
    let asks = !args.yes && std::io::stdin().is_terminal();
    let mut lines = std::io::stdin().lock();
    let mut say = |text: &str| output::to_stderr(format_args!("{text}"));
    let answers = asks.then_some(&mut lines as &mut dyn BufRead);
    let mut interview = Interview { answers, say: &mut say, chosen: Vec::new() };
    let sender = interview.all(args)?;
    let chosen = interview.chosen;
    let text = text_of(&args.file, &chosen)?;
    write(args, &text, &refusal)?;
    let mut next = vec![format!("shotline record --config {}", crate::overview::quoted(&args.file))];
    if sender == Sender::Emulated {
        let (_, address) = chosen.first().ok_or("no address was chosen")?;
        let address = crate::overview::quoted(Path::new(address.trim_matches('"')));
        next.insert(0, format!("shotline emulate probe --listen {address}   (in another terminal)"));
    }
    let commented = Key::ALL.len() - chosen.len();
    let settings = chosen.into_iter().map(|(key, value)| (key.name(), value)).collect();
    print_report(args.json, &Written { file: args.file.clone(), settings, commented, next })
}

/// Writes the file under its name once it is complete: with --force the old one remains until then.
fn write(args: &Args, text: &str, refusal: &dyn Fn() -> String) -> Result {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", args.file.display());
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As for any new file, the umask decides who can read it.
    let mode = std::fs::Permissions::from_mode(0o666);
    let mut draft = tempfile::Builder::new().permissions(mode).tempfile_in(folder).map_err(failed)?;
    draft.write_all(text.as_bytes()).map_err(failed)?;
    if args.force {
        draft.persist(&args.file).map_err(|error| failed(error.error))?;
        return Ok(());
    }
    draft.persist_noclobber(&args.file).map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => refusal(),
        _ => failed(error.error),
    })?;
    Ok(())
}

/// Returns the contents of a file, which `record` accepts.
fn text_of(path: &Path, chosen: &[(Key, String)]) -> Result<String> {
    let text = format!(
        "#:schema {}\n\
         # Settings of a run: shotline record --config {}\n\
         #\n\
         # A flag takes precedence over the line with its name: --rate-hz over rate_hz. To set more, remove the # in front\n\
         # of a name. The value there is an example.\n\n{}",
        Format::Settings.url(),
        path.display(),
        config::template(chosen)
    );
    File::parse(path, &text)?.with_flags(Settings::default())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Returns the settings that flags and answers choose, and what was said.
    fn choose(flags: &str, answers: Option<&str>) -> (Result<Vec<(Key, String)>>, String) {
        let args = Line::parse_from(["init"].into_iter().chain(flags.split_whitespace())).args;
        let mut said = String::new();
        let mut say = |text: &str| said.push_str(text);
        let mut lines = answers.map(|answers| answers.as_bytes());
        let answers = lines.as_mut().map(|lines| lines as &mut dyn BufRead);
        let mut interview = Interview { answers, say: &mut say, chosen: Vec::new() };
        let result = interview.all(&args).map(|_| interview.chosen);
        (result, said)
    }

    fn named(chosen: Result<Vec<(Key, String)>>) -> String {
        let chosen = chosen.unwrap();
        text_of(Path::new("run.toml"), &chosen).unwrap();
        chosen.iter().map(|(key, value)| format!("{}={value} ", key.name())).collect()
    }

    #[test]
    fn answers_choose_settings_and_empty_ones_defaults() {
        let (chosen, said) = choose("", Some("\n\n\n\n\n"));
        assert_eq!(named(chosen), "probe=\"[::1]:47910\" out=\"run.h5\" ");
        assert!(said.contains("sender [probe]: ") && said.contains("seconds [none]: "), "{said}");
        let (chosen, _) = choose("", Some("packets\n127.0.0.1:7148\nud\n0x12\n\na b.h5\n1.5\n4GiB\n"));
        let expected = "listen=\"127.0.0.1:7148\" framing=\"ud\" queue_pair=0x12 q_key=0x11111111 out=\"a b.h5\" seconds=1.5 keep=\"4GiB\" ";
        assert_eq!(named(chosen), expected);
    }

    #[test]
    fn wrong_answers_are_asked_again() {
        let (chosen, said) = choose("", Some("tape\nprobe\nlab\n[::1]:9\n\n0\n10\n3GB\n3GiB\n"));
        assert_eq!(named(chosen), "probe=\"[::1]:9\" out=\"run.h5\" seconds=10 keep=\"3GiB\" ");
        for words in ["found tape", "with a port", "above 0", "256MiB"] {
            assert!(said.contains(words), "no {words}: {said}");
        }
        let (chosen, _) = choose("", Some("probe\n"));
        assert!(chosen.unwrap_err().to_string().contains("--yes"), "the input ended");
    }

    #[test]
    fn flags_answer_without_a_terminal() {
        let (chosen, said) = choose("--sender digitizer --address 127.0.0.1:5 --out a.h5 --seconds 5", None);
        assert_eq!(named(chosen), "listen=\"127.0.0.1:5\" framing=\"digitizer\" out=\"a.h5\" seconds=5 ");
        assert!(said.is_empty(), "{said}");
        for (flags, words) in [
            ("--sender packets --framing tape", "spead"),
            ("--framing ud", "--sender packets"),
            ("--keep 3GB", "256MiB"),
        ] {
            let error = choose(flags, None).0.unwrap_err().to_string();
            assert!(error.contains(words), "{flags}: {error}");
        }
    }
}
